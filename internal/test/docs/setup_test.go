// Package docs tests what the repository says about itself: its documents, the commands in README, the listings of the public API, its
// imports, and the requirements of its modules.
package docs

import (
	"os"
	"testing"
)

// The tests run in the root of the repository. Go's test cache does not know which files they read there, so run them with -count=1.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
