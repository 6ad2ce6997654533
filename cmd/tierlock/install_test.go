package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The command installs from the root module alone: no workspace, no replacement, nothing to add
// to go.mod.
func TestInstallsFromACleanClone(t *testing.T) {
	t.Parallel()
	git := exec.Command("git", "rev-parse", "--show-toplevel")
	top, err := git.Output()
	if err != nil {
		t.Skip("no clone to copy: ", err)
	}
	root := strings.TrimSpace(string(top))
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mod), "replace") {
		t.Error("go.mod has a replace: go install refuses such a module")
	}
	clone := filepath.Join(t.TempDir(), "clone")
	if out, err := exec.Command("git", "clone", "-q", "--depth", "1", "file://"+root, clone).CombinedOutput(); err != nil {
		t.Skipf("no clone: %v\n%s", err, out)
	}
	install := exec.Command("go", "install", "./cmd/tierlock")
	install.Dir = clone
	bin := t.TempDir()
	install.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly", "GOBIN="+bin)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(filepath.Join(bin, "tierlock"), "help").Output()
	if err != nil || !strings.Contains(string(out), "tierlock help SUBCOMMAND") {
		t.Errorf("what was installed says %q, %v", out, err)
	}
}
