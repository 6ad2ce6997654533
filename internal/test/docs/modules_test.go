package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// The function run runs a command in a folder, without network access, and returns its output.
func run(t *testing.T, dir string, env []string, command ...string) string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "GOPROXY=off", "GOSUMDB=off"), env...)
	out, err := cmd.CombinedOutput()
	need.Must(t, fmt.Sprintf("%q: %v: %s", command, err, out), err == nil)
	return string(out)
}

// A program that requires the locks of a store gets the modules that these locks need. It does not get modules that only our tests need.
func TestModulesOfStoresRequireNothingForTests(t *testing.T) {
	for store, client := range map[string]string{
		"": "github.com/go-zookeeper/zk", "etcdlock": "go.etcd.io/etcd/client/v3", "pglock": "github.com/jackc/pgx/v5",
		"mysqllock": "github.com/go-sql-driver/mysql", "redislock": "github.com/redis/go-redis/v9",
	} {
		t.Run(store, func(t *testing.T) {
			root, dir, all := need.Get(os.Getwd())(t), t.TempDir(), strings.TrimSuffix(module, "/")
			required := strings.TrimSuffix(module+store, "/")
			lines := []string{"module user", "go 1.26.0", "require " + required + " v0.0.0"}
			for path, at := range map[string]string{all: root, required: filepath.Join(root, store)} {
				lines = append(lines, fmt.Sprintf("replace %s => %q", path, at))
			}
			need.OK(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(strings.Join(lines, "\n")), 0o644))
			// With -e, go list reports no error if it does not know the date of a version.
			list := run(t, dir, []string{"GOWORK=off", "GOFLAGS=-mod=mod"}, "go", "list", "-m", "-e", "-f", "{{.Path}}", "all")
			need.That(t, client+" is missing, or the list says nothing: "+list, strings.Contains(list, client+"\n"))
			for _, unwanted := range []string{"redsync", "bsm/redislock", "rapid"} {
				need.That(t, unwanted+" is required: "+list, !strings.Contains(list, unwanted))
			}
		})
	}
}

// The command go install refuses a module that contains a replace directive. Released modules may contain only those replace directives
// that scripts/check-release.sh and a release remove.
func TestReleasedModulesReplaceOnlyTheRootAndStores(t *testing.T) {
	dropped := []string{".", "contrib/tierprom", "etcdlock", "mysqllock", "pglock", "redislock"}
	dirs := append([]string{"cmd/tierlock"}, dropped...)
	for _, file := range need.Get(filepath.Glob("contrib/*/go.mod"))(t) {
		if dir := filepath.Dir(file); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range dirs {
		var mod struct {
			Replace []struct{ Old, New struct{ Path string } }
		}
		need.OK(t, json.Unmarshal([]byte(run(t, dir, nil, "go", "mod", "edit", "-json")), &mod))
		need.That(t, "the root module has a replace", dir != "." || len(mod.Replace) == 0)
		for _, r := range mod.Replace {
			to := filepath.Join(dir, r.New.Path)
			is := strings.TrimSuffix(module+strings.TrimPrefix(to, "."), "/")
			need.That(t, dir+" replaces "+r.Old.Path+" by "+to, r.Old.Path == is && slices.Contains(dropped, to))
		}
	}
}

// A user who reads the documentation in a fresh clone must not change any file. Without complete sums, the go command would add lines to
// go.work.sum.
func TestGoDocChangesNoFile(t *testing.T) {
	if _, err := os.Stat(".git"); err != nil {
		t.Skip("no clone to make one of")
	}
	dir := t.TempDir()
	run(t, ".", nil, "git", "clone", "-q", ".", dir)
	for _, folder := range importable(t) {
		if _, err := os.Stat(filepath.Join(dir, folder)); err != nil {
			continue // this folder is not committed yet
		}
		run(t, dir, []string{"GOFLAGS="}, "go", "doc", "./"+folder)
		need.Must(t, "go doc ./"+folder+" has changed a file", run(t, dir, nil, "git", "status", "--short") == "")
	}
}
