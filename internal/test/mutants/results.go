package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

type verdict string

const (
	killed   verdict = "killed"
	survived verdict = "survived"
	invalid  verdict = "invalid" // the mutant does not compile
)

// A result is the outcome of a mutant.
type result struct {
	Mutant  string  `json:"mutant"`
	Verdict verdict `json:"verdict"`
	By      string  `json:"by,omitempty"` // the test that failed
}

// A results value stores the outcomes of mutants in a file outside the source tree. The outcomes are valid only for exactly this source.
type results struct {
	mu    sync.Mutex // guards the fields below
	known map[string]result
	file  *os.File
}

func openResults(root string, with []string) (*results, error) {
	print, err := fingerprint(root, with)
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "tierlock-mutants")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, print+".jsonl"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	r := &results{known: make(map[string]result), file: file}
	for d := json.NewDecoder(file); ; {
		var one result
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), errors.Join(err, file.Close()))
		}
		r.known[one.Mutant] = one
	}
}

func (r *results) close() error { return r.file.Close() }

func (r *results) of(m mutant) (result, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, ok := r.known[m.String()]
	return one, ok
}

func (r *results) add(m mutant, one result) error {
	one.Mutant = m.String()
	line, err := json.Marshal(one)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[one.Mutant] = one
	_, err = r.file.Write(append(line, '\n')) // one call of Write: if the run is stopped, the file still contains only whole lines
	return err
}

// fingerprint returns a hash of everything on which the outcomes depend: the code, the tests, and the selection of tests.
func fingerprint(root string, with []string) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q\n", with)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		from, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch from = filepath.ToSlash(from); from {
			case "stress", "interop", "examples", "internal/test/mutants", "scripts", ".git":
				return filepath.SkipDir
			}
			return nil
		}
		if name := d.Name(); !strings.HasSuffix(name, ".go") && name != "go.mod" {
			return nil
		}
		src, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n%s", filepath.ToSlash(from), len(src), src)
		return err
	})
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), err
}
