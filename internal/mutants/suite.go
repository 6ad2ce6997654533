package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// viewers are the packages whose tests can see something, each before those farther away.
var viewers = append(slices.Clone(packages), "internal/sim")

// A suite is the tests of one tree.
type suite struct {
	root    string
	dir     string              // for what is built
	waiting map[string][]string // package → tests that need a real server
}

const (
	modelBound  = time.Minute // for tests in virtual time, which take seconds
	serverBound = 2 * time.Minute
)

// A step is one run of a test binary.
type step struct {
	pkg    string
	server bool // the tests that need a real server, in real time; else all others
}

// steps returns the runs for a mutant of pkg, nearest first, and what takes real time last.
func (s *suite) steps(pkg string) []step {
	var steps []step
	from := slices.Index(viewers, pkg)
	for _, viewer := range viewers[from:] {
		steps = append(steps, step{pkg: viewer})
	}
	for _, viewer := range viewers[from:] {
		if len(s.waiting[viewer]) > 0 {
			steps = append(steps, step{pkg: viewer, server: true})
		}
	}
	return steps
}

// prepare runs the tests without a mutant. They have to pass, and say which of them need a server.
func prepare(ctx context.Context, root string) (*suite, error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	s := &suite{root: root, dir: dir, waiting: make(map[string][]string)}
	for _, pkg := range viewers {
		binary, err := s.build(ctx, pkg, s.dir, "")
		if err == nil {
			var out []byte
			out, err = s.run(ctx, binary, step{pkg: pkg}, "-test.v")
			s.waiting[pkg] = names(out, skipped)
			if err != nil {
				os.Stderr.Write(out)
			}
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("without a mutant: %s: %w", pkg, err), s.close())
		}
	}
	return s, nil
}

func (s *suite) close() error { return os.RemoveAll(s.dir) }

// try finds out what becomes of a mutant.
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
	if _, err := s.gotool(ctx, "build", "-overlay", overlay, "./"+m.pkg()); err != nil {
		return result{Verdict: invalid}, ctx.Err()
	}
	binaries := make(map[string]string)
	for _, step := range s.steps(m.pkg()) {
		if binaries[step.pkg] == "" {
			binaries[step.pkg], err = s.build(ctx, step.pkg, dir, overlay)
			if err != nil {
				return result{}, fmt.Errorf("%v: %w", m, err)
			}
		}
		by, err := s.look(ctx, binaries[step.pkg], step)
		if err != nil || by != "" {
			return result{Verdict: killed, By: by}, err
		}
	}
	return result{Verdict: survived}, nil
}

// look returns the test that fails, "" if none does. In real time a test may also fail for the load of the machine, so there it
// takes two failures.
func (s *suite) look(ctx context.Context, binary string, step step) (by string, err error) {
	for range 2 {
		out, err := s.run(ctx, binary, step)
		if err == nil || ctx.Err() != nil {
			return "", ctx.Err()
		}
		by = step.pkg + " " + strings.Join(names(out, failed, panicked, running), " ")
		if !step.server {
			break
		}
	}
	return by, nil
}

var (
	skipped  = regexp.MustCompile(`(?m)^--- SKIP: (\S+)`)
	failed   = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	panicked = regexp.MustCompile(`(?m)^((?:panic|fatal error): .*)`)
	running  = regexp.MustCompile(`(?m)^\t(Test\S+) \(`) // when it was timed out
)

// names returns what the patterns match in the output of tests.
func names(out []byte, patterns ...*regexp.Regexp) []string {
	var list []string
	for _, p := range patterns {
		for _, match := range p.FindAllSubmatch(out, -1) {
			list = append(list, brief(string(match[1])))
		}
	}
	return list
}

// overlay writes the file with the mutant, and what tells the go command to take it.
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
	path := filepath.Join(dir, "overlay.json")
	return path, errors.Join(os.WriteFile(changed, m.apply(src), 0o644), os.WriteFile(path, list, 0o644))
}

// build returns the test binary of pkg.
func (s *suite) build(ctx context.Context, pkg, dir, overlay string) (string, error) {
	binary := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "-")+".test")
	out, err := s.gotool(ctx, "test", "-c", "-o", binary, "-overlay", overlay, "./"+pkg)
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return binary, nil
}

func (s *suite) gotool(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = s.root
	return cmd.CombinedOutput()
}

// run runs a test binary as the go command would, in its folder. A mutant may allocate without end, so memory is limited.
func (s *suite) run(ctx context.Context, binary string, step step, args ...string) ([]byte, error) {
	bound := modelBound
	tests := "^(" + strings.Join(s.waiting[step.pkg], "|") + ")$"
	if step.server {
		bound = serverBound
		args = append(args, "-test.run", tests)
	} else if len(s.waiting[step.pkg]) > 0 {
		args = append(args, "-test.skip", tests)
	}
	if step.pkg == "internal/sim" {
		args = append(args, "-seeds", "150", "-shrink=false")
	}
	args = append(args, "-test.failfast", "-test.timeout", bound.String())
	ctx, cancel := context.WithTimeout(ctx, bound+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -d 3000000; exec "$0" "$@"`, binary}, args...)...)
	cmd.Dir = filepath.Join(s.root, filepath.FromSlash(step.pkg))
	cmd.WaitDelay = time.Second // for servers that the tests have started
	if !step.server {
		cmd.Env = append(cmd.Environ(), "ZOOKEEPER_HOME="+s.dir, "TIERLOCK_REQUIRE_SERVER=0") // where there is none
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.Bytes(), err
}
