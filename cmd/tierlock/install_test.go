package main_test

import (
	"os"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// Go install refuses a module with a replacement. That the root module builds without the workspace, a build of it alone shows.
func TestGoInstallTakesTheModule(t *testing.T) {
	t.Parallel()
	mod := need.Get(os.ReadFile("../../go.mod"))(t)
	need.That(t, "go.mod has a replace: go install refuses such a module", !strings.Contains(string(mod), "replace"))
}
