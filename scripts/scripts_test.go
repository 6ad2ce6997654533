//go:build unix

// Package scripts_test runs the scripts that download servers, with downloads that fail, and with faked package managers.
package scripts_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// tools returns a PATH with the given programs. The text of each program is its script. An empty text stands for the machine's own program.
func tools(t *testing.T, fakes map[string]string) (path string) {
	t.Helper()
	path = t.TempDir()
	for name, text := range fakes {
		file := filepath.Join(path, name)
		if text != "" {
			need.OK(t, os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
		} else if real, err := exec.LookPath(name); err == nil { // if there is none, the script fails before it needs it
			need.OK(t, os.Symlink(real, file))
		}
	}
	return path
}

// run runs a script that can use only the programs in path. The cache of the script is in dir.
func run(t *testing.T, script, dir, path string) (out, errs string, err error) {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	var o, e bytes.Buffer
	cmd := exec.Command(bash, script)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &o, &e
	cmd.Env = []string{"PATH=" + path, "HOME=" + t.TempDir(), "XDG_CACHE_HOME=" + filepath.Join(dir, "cache")}
	err = cmd.Run()
	return o.String(), e.String(), err
}

// A script whose download fails exits with an error and keeps nothing in the cache. The next run tries again.
func TestFailedDownloadIsAnErrorAndIsNotKept(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("get-*.sh")
	need.OK(t, err)
	need.AtLeast(t, "scripts", len(scripts), 10)
	fakes := map[string]string{
		"apt-get": "echo 'E: Failed to fetch' >&2; exit 100", "sudo": "exit 1", "go": "exit 1",
		"id":                    "echo 1000", // root has another cache
		"x86_64-w64-mingw32-ld": "exit 1", "x86_64-w64-mingw32-as": "exit 1", "timeout": "exit 1",
		"java": "exit 1", "unshare": "exit 0",
	}
	for _, name := range strings.Fields("bash basename cat chmod cp dirname dpkg-deb exec find grep mkdir mktemp mv paste realpath rm sed " +
		"sh sort tail touch") {
		fakes[name] = ""
	}
	path := tools(t, fakes)
	for _, script := range scripts {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			abs := need.Get(filepath.Abs(script))(t)
			dir := t.TempDir()
			out, errs, err := run(t, abs, dir, path)
			kept, _ := filepath.Glob(filepath.Join(dir, "cache", "tierlock", "*"))
			need.Empty(t, "kept in the cache", kept)
			if err == nil && !strings.Contains(out, dir) {
				t.Skip("installed on this machine: ", out)
			}
			need.That(t, "it says that it has succeeded: "+out, err != nil)
			need.That(t, "it does not say why", errs != "")
		})
	}
}

// make demo says what it will install before it does anything as root.
func TestWhatIsInstalledIsSaidBefore(t *testing.T) {
	t.Parallel()
	path := tools(t, map[string]string{
		"sudo": `echo "as root: $*" >&2; exit 1`, "apt-get": "exit 1", "id": "echo 1000", "java": "exit 1",
		"bash": "", "cat": "", "env": "",
	})
	_, errs, err := run(t, need.Get(filepath.Abs("get-zookeeper.sh"))(t), t.TempDir(), path)
	said, _, asRoot := strings.Cut(errs, "as root: ")
	if !asRoot {
		t.Skip("nothing is installed here: ", errs)
	}
	need.That(t, "it says that it has succeeded", err != nil)
	for _, what := range []string{"sudo apt-get install", "libzookeeper-java", "default-jre-headless", "$ZOOKEEPER_HOME"} {
		need.That(t, what+" is not mentioned before: "+said, strings.Contains(said, what))
	}
}

// A script may use a directory of this repository that is moved later. Without this test, that could stay unnoticed, because the server may
// already be in the cache.
func TestScriptsNameFoldersThatAreThere(t *testing.T) {
	t.Parallel()
	folder := regexp.MustCompile(`/\.\./((?:internal|stress|cmd)/[\w/-]+)`)
	found := 0
	for _, script := range need.Get(filepath.Glob("*.sh"))(t) {
		for _, m := range folder.FindAllStringSubmatch(string(need.Get(os.ReadFile(script))(t)), -1) {
			found++
			need.OK(t, need.ErrOf(os.Stat(filepath.Join("..", m[1]))))
		}
	}
	need.AtLeast(t, "folders found, or the pattern has gone out of use", found, 1)
}
