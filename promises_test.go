package tierlock_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlock/tierlock/internal/tiertest"
)

// README says what each second tier promises, as its test run has recorded it.
func TestReadmeHasThePromisesOfEachStore(t *testing.T) {
	files, err := filepath.Glob("docs/promises/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded promises: %v", err)
	}
	slices.Reverse(files) // ZooKeeper first
	tiertest.Summarize(t, "README.md", files...)
}
