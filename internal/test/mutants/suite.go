package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const module = "github.com/tierlock/tierlock"

// viewers are the packages whose tests can detect mutants, nearest packages first.
var viewers = append(slices.Clone(packages), "internal/memory", "cmd/tierlock/internal/zkinspect", "internal/test/explore")

// A suite is the tests of one tree, except those that need a real server, because they take long. Tests in virtual time should find the
// same defects.
type suite struct {
	root  string
	dir   string // the directory for test binaries and overlays
	with  string // the only package whose tests run; if empty, all packages run whose tests may detect the mutant
	args  []string
	bound map[string]func() (cost, error) // for each package: the limits of a run of its tests
	parts map[string][]string             // for each package: the packages from which its tests are built
}

// A cost is the time that a run of tests takes.
type cost struct{ time, cpu time.Duration }

func newSuite(ctx context.Context, root, with string, args []string) (*suite, error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	s := &suite{root: root, dir: dir, with: with, args: args, bound: make(map[string]func() (cost, error)), parts: make(map[string][]string)}
	all := slices.Clone(viewers)
	if with != "" {
		all = append(all, with)
	}
	for _, pkg := range all {
		s.bound[pkg] = sync.OnceValues(func() (cost, error) { return s.measure(ctx, pkg) })
		if s.parts[pkg], err = parts(ctx, root, pkg); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

func (s *suite) close() error { return os.RemoveAll(s.dir) }

// measure runs the tests of pkg without a mutant. The tests have to pass. With a mutant, they may take a multiple of the measured times.
// The limit of processor time stops tests that spin, and the limit of real time stops tests that hang.
func (s *suite) measure(ctx context.Context, pkg string) (bound cost, err error) {
	dir, err := os.MkdirTemp(s.dir, "")
	if err != nil {
		return cost{}, err
	}
	binary, err := s.build(ctx, pkg, dir, "")
	if err != nil {
		return cost{}, err
	}
	began := time.Now()
	out, state, err := s.run(ctx, pkg, binary, cost{10 * time.Minute, 10 * time.Minute})
	if err != nil {
		return cost{}, fmt.Errorf("%s without a mutant: %w\n%s", pkg, err, out)
	}
	return cost{
		time: max(20*time.Since(began), 5*time.Minute),
		cpu:  max(5*(state.UserTime()+state.SystemTime()), 20*time.Second),
	}, nil
}

// The method try finds the outcome of a mutant. The nearest tests run first.
func (s *suite) try(ctx context.Context, m mutant) (result, error) {
	dir, err := os.MkdirTemp(s.dir, "")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(dir)
	overlay, err := s.overlay(m, dir)
	if err != nil {
		return result{}, err
	}
	for _, pkg := range s.viewers(m) {
		if tests, _ := filepath.Glob(filepath.Join(s.root, pkg, "*_test.go")); len(tests) == 0 {
			continue
		}
		bound, err := s.bound[pkg]()
		if err != nil {
			return result{}, err
		}
		binary, err := s.build(ctx, pkg, dir, overlay)
		if err != nil {
			return result{Verdict: invalid, By: pkg}, ctx.Err()
		}
		if out, _, err := s.run(ctx, pkg, binary, bound); err != nil {
			by := append(names(out, failed, panicked, running), err.Error())
			if s.with != "" {
				by = append(names(out, said), by...)
			}
			return result{Verdict: killed, By: pkg + " " + by[0]}, ctx.Err()
		}
	}
	return result{Verdict: survived}, nil
}

// The method viewers returns the packages whose tests may detect a mutant. These are the packages whose tests are built with the mutant's
// package.
func (s *suite) viewers(m mutant) []string {
	if s.with != "" {
		return []string{s.with}
	}
	return slices.DeleteFunc(slices.Clone(viewers[slices.Index(viewers, m.pkg()):]), func(pkg string) bool {
		return !slices.Contains(s.parts[pkg], path.Join(module, m.pkg()))
	})
}

// The function parts returns the packages from which the tests of pkg are built.
func parts(ctx context.Context, root, pkg string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-test", "-deps", "./"+pkg)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list ./%s: %w", pkg, err)
	}
	// If a package is built again for a test, the list contains it with the name of the test after its own name.
	return strings.Fields(string(out)), nil
}

var (
	said     = regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: (.*)`)
	failed   = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	panicked = regexp.MustCompile(`(?m)^((?:panic|fatal error): .*)`)
	running  = regexp.MustCompile(`(?m)^\t(Test\S+) \(`) // the tests that were running when the limit of time was reached
)

// The function names returns the text that the patterns match in the output of tests.
func names(out []byte, patterns ...*regexp.Regexp) []string {
	var list []string
	for _, p := range patterns {
		for _, match := range p.FindAllSubmatch(out, -1) {
			list = append(list, brief(string(match[1])))
		}
	}
	return list
}

// overlay writes the changed file, and an overlay that makes the go command use it.
func (s *suite) overlay(m mutant, dir string) (string, error) {
	original := filepath.Join(s.root, filepath.FromSlash(m.file))
	src, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, "mutant.go")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(os.WriteFile(changed, m.apply(src), 0o644), os.WriteFile(overlay, list, 0o644))
}

// The method build compiles the tests of pkg, and returns the path of the test binary.
func (s *suite) build(ctx context.Context, pkg, dir, overlay string) (string, error) {
	binary := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "-")+".test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags", "-s -w", "-o", binary, "-overlay", overlay, "./"+pkg)
	cmd.Dir = s.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return binary, nil
}

// The method run runs a test binary in the directory of its package, as the go command would. It limits time and memory, because a mutant
// may loop or allocate without end.
func (s *suite) run(ctx context.Context, pkg, binary string, bound cost) ([]byte, *os.ProcessState, error) {
	limits := fmt.Sprintf(`ulimit -d 3000000; ulimit -t %d; exec "$0" "$@"`, int(bound.cpu.Seconds()))
	args := []string{"-c", limits, binary, "-test.failfast", "-test.timeout", bound.time.String()}
	if pkg == "internal/test/explore" {
		args = append(args, "-seeds", "300", "-unreduced")
	}
	args = append(args, s.args...)
	ctx, cancel := context.WithTimeout(ctx, bound.time+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = filepath.Join(s.root, filepath.FromSlash(pkg))
	// without a server, the tests that need one are skipped
	cmd.Env = append(cmd.Environ(), "ZOOKEEPER_HOME="+s.dir, "TIERLOCK_REQUIRE_SERVER=0")
	out, err := cmd.CombinedOutput()
	return out, cmd.ProcessState, err
}
