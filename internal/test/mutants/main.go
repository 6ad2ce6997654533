// Command mutants removes one guard at a time from the packages of the lock, and runs the tests that can detect that. A mutant survives if
// no test fails. Then a guard has no test, or the line guards nothing. The work tree is never changed. The output ends with the line
//
//	mutants: N, survived S, equivalent E
//
// and the command fails if S is not 0. E is the number of mutants that survived and are listed in equivalent.txt, because they change
// nothing that can be observed. A run that was stopped continues where it was.
//
// With -with PACKAGE, only the tests of that package have to detect the mutants. The arguments after the flags are passed to these tests:
//
//	go run ./internal/test/mutants -with internal/test/explore -only '^tier/' -- -test.run TestScopes -all -first -most 5000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var (
		dir  = flag.String("dir", ".", "root of the module")
		n    = flag.Int("n", 200, "number of mutants to try, 0 for all")
		seed = flag.Uint64("seed", 1, "of the order in which they are taken")
		jobs = flag.Int("jobs", 2, "number of mutants at a time")
		only = flag.String("only", "", "try only mutants that match this regular expression")
		list = flag.Bool("list", false, "print the mutants in order, and try none")
		with = flag.String("with", "", "the package whose tests alone have to see them; the arguments are for these tests")
	)
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	root, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	all, err := findAll(root)
	if err != nil {
		return err
	}
	reasons, err := equivalents()
	if err != nil {
		return err
	}
	stale := unknown(reasons, all)
	queue := inOrder(all, *seed, pattern)
	if *n == 0 {
		*n = len(queue)
	}
	if *list {
		for _, m := range queue {
			fmt.Println(m)
		}
		return nil
	}
	results, err := openResults(root, append([]string{*with}, flag.Args()...))
	if err != nil {
		return err
	}
	defer results.close()
	suite, err := newSuite(ctx, root, *with, flag.Args())
	if err != nil {
		return err
	}
	defer suite.close()
	h := &hunt{suite: suite, results: results, reasons: reasons, queue: queue, want: *n}
	var workers sync.WaitGroup
	for range *jobs {
		workers.Go(func() { h.work(ctx) })
	}
	workers.Wait()
	if h.err != nil {
		return h.err
	}
	return h.report(stale)
}

// A hunt tries some of the mutants.
type hunt struct {
	suite   *suite
	results *results
	reasons map[string]string

	mu       sync.Mutex // guards the fields below
	queue    []mutant   // mutants that no worker has taken yet
	want     int        // how many more mutants are to be tried
	tried    int
	survived []mutant
	equal    []mutant // mutants that survived and are listed as equivalent
	stale    []mutant // mutants that are listed as equivalent, but made a test fail
	err      error
}

// The method work tries mutants until enough were tried. A mutant that does not compile does not count.
func (h *hunt) work(ctx context.Context) {
	for {
		m, ok := h.take()
		if !ok {
			return
		}
		began := time.Now()
		r, known := h.results.of(m)
		var err error
		if !known {
			r, err = h.suite.try(ctx, m)
		}
		if err == nil && !known {
			err = h.results.add(m, r)
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			h.fail(err)
			return
		}
		h.count(m, r, time.Since(began))
	}
}

func (h *hunt) take() (m mutant, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil || h.want == 0 || len(h.queue) == 0 {
		return mutant{}, false
	}
	m, h.queue = h.queue[0], h.queue[1:]
	h.want--
	return m, true
}

func (h *hunt) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = err
	}
}

func (h *hunt) count(m mutant, r result, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Verdict == invalid {
		h.want++
		return
	}
	h.tried++
	_, listed := h.reasons[m.String()]
	switch {
	case r.Verdict == killed && listed:
		h.stale = append(h.stale, m)
	case r.Verdict == survived && listed:
		h.equal = append(h.equal, m)
	case r.Verdict == survived:
		h.survived = append(h.survived, m)
	}
	fmt.Printf("%4d %-8s %5.1fs  %v", h.tried, r.Verdict, took.Seconds(), m)
	if r.By != "" {
		fmt.Printf("  (%s)", r.By)
	}
	fmt.Println()
}

// report prints the mutants that survived, and then the last line of the output.
func (h *hunt) report(stale []string) error {
	for _, id := range stale {
		fmt.Println("stale, there is no such mutant any more:", id)
	}
	for _, m := range h.stale {
		fmt.Println("stale: a test kills this mutant, which is listed as equivalent:", m)
	}
	for _, m := range h.survived {
		fmt.Println("survived:", m)
	}
	fmt.Printf("mutants: %d, survived %d, equivalent %d\n", h.tried, len(h.survived), len(h.equal))
	if len(h.survived) > 0 {
		return errors.New("some survived")
	}
	if len(stale)+len(h.stale) > 0 {
		return errors.New("equivalent.txt has stale entries")
	}
	return nil
}
