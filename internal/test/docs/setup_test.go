// Package docs tests what the repository says of itself: its documents, the lines of README, the listings of the public API, who imports
// whom, and what the modules require.
package docs

import (
	"os"
	"testing"
)

// The tests run in the root of the repository. Go does not see there which files they read: run them with -count=1.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
