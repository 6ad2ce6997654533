package main_test

import (
	"os"
	"strings"
	"testing"
)

// Go install refuses a module with a replacement. That the root module builds without the workspace, a build of it alone shows.
func TestGoInstallTakesTheModule(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mod), "replace") {
		t.Error("go.mod has a replace: go install refuses such a module")
	}
}
