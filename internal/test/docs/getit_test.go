package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// The constant user is a program that takes locks on every store.
const user = `package main

import (
	_ "github.com/tierlock/tierlock/etcdlock"
	_ "github.com/tierlock/tierlock/memlock"
	_ "github.com/tierlock/tierlock/pglock"
	_ "github.com/tierlock/tierlock/redislock"
	_ "github.com/tierlock/tierlock/zklock"
)

func main() {}
`

// README has commands that install tierlock, and commands that make a program require the clone. They have to work as written, in a
// directory with nothing but the program. The test replaces the published repository by this one. It downloads a module only if this
// machine lacks it.
func TestReadmeGetsCommandAndPackages(t *testing.T) {
	if _, err := os.Stat(".git"); err != nil {
		t.Skip("no clone to make one of")
	}
	if os.Getenv("GOWORK") == "off" {
		t.Skip("the Go of a run for the root module alone may be too old for the modules of the stores")
	}
	block := regexp.MustCompile("(?ms)^```\n(git clone .*?)^```").FindStringSubmatch(string(need.Get(os.ReadFile("README.md"))(t)))
	need.Must(t, "README has no block that begins with git clone", block != nil)
	root, dir := need.Get(os.Getwd())(t), t.TempDir()
	program := filepath.Join(dir, "report")
	need.OK(t, os.Mkdir(program, 0o700))
	need.OK(t, os.WriteFile(filepath.Join(program, "go.mod"), []byte("module report\n\ngo 1.26.0\n"), 0o600))
	need.OK(t, os.WriteFile(filepath.Join(program, "main.go"), []byte(user), 0o600))
	cache, proxy, _ := strings.Cut(strings.TrimSpace(string(need.Get(exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output())(t))), "\n")
	env := []string{
		"GOPROXY=file://" + filepath.ToSlash(filepath.Join(cache, "cache", "download")) + "," + proxy, "GOFLAGS=-trimpath", "GOWORK=",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + root + ".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/tierlock/tierlock",
	}
	run(t, dir, env, "sh", "-e", "-c", block[1]+"go build -o . .")
	for _, built := range []string{"tierlock/tierlock", "report/report"} {
		need.WantErr(t, built, need.ErrOf(os.Stat(filepath.Join(dir, built))), nil)
	}
}
