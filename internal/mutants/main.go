// Command mutants takes one guard at a time out of the packages of the lock and runs the tests that can see it. A mutant that
// no test fails for has survived: a guard without a test, or one that guards nothing. The work tree is never touched. It
// ends with the line
//
//	mutants: N, survived S, equivalent E
//
// and an error unless S is 0. E counts those of the N that are listed in equivalent.txt because nothing observable
// changes. A run that was stopped goes on where it was.
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
		only = flag.String("only", "", "try those that match this regular expression only")
		list = flag.Bool("list", false, "print the mutants in order, and try none")
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
	results, err := openResults(root)
	if err != nil {
		return err
	}
	defer results.close()
	suite, err := newSuite(ctx, root)
	if err != nil {
		return err
	}
	defer suite.close()
	t := &trial{suite: suite, results: results, reasons: reasons, queue: queue, want: *n}
	var workers sync.WaitGroup
	for range *jobs {
		workers.Go(func() { t.work(ctx) })
	}
	workers.Wait()
	if t.err != nil {
		return t.err
	}
	return t.report(stale)
}

// A trial is a run over some of the mutants.
type trial struct {
	suite   *suite
	results *results
	reasons map[string]string

	mu       sync.Mutex // guards the fields below
	queue    []mutant   // not taken yet
	want     int        // how many are still to be taken
	tried    int
	survived []mutant
	equal    []mutant // survived, and listed
	stale    []mutant // listed, and killed
	err      error
}

// work takes mutants until there are enough. One that does not compile does not count.
func (t *trial) work(ctx context.Context) {
	for {
		m, ok := t.take()
		if !ok {
			return
		}
		began := time.Now()
		r, known := t.results.of(m)
		var err error
		if !known {
			r, err = t.suite.try(ctx, m)
		}
		if err == nil && !known {
			err = t.results.add(m, r)
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			t.fail(err)
			return
		}
		t.count(m, r, time.Since(began))
	}
}

func (t *trial) take() (m mutant, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil || t.want == 0 || len(t.queue) == 0 {
		return mutant{}, false
	}
	m, t.queue = t.queue[0], t.queue[1:]
	t.want--
	return m, true
}

func (t *trial) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
}

func (t *trial) count(m mutant, r result, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Verdict == invalid {
		t.want++
		return
	}
	t.tried++
	_, listed := t.reasons[m.String()]
	switch {
	case r.Verdict == killed && listed:
		t.stale = append(t.stale, m)
	case r.Verdict == survived && listed:
		t.equal = append(t.equal, m)
	case r.Verdict == survived:
		t.survived = append(t.survived, m)
	}
	fmt.Printf("%4d %-8s %5.1fs  %v", t.tried, r.Verdict, took.Seconds(), m)
	if r.By != "" {
		fmt.Printf("  (%s)", r.By)
	}
	fmt.Println()
}

// report prints what survived, and the last line.
func (t *trial) report(stale []string) error {
	for _, id := range stale {
		fmt.Println("stale, there is no such mutant any more:", id)
	}
	for _, m := range t.stale {
		fmt.Println("stale, a test kills what is listed as equivalent:", m)
	}
	for _, m := range t.survived {
		fmt.Println("survived:", m)
	}
	fmt.Printf("mutants: %d, survived %d, equivalent %d\n", t.tried, len(t.survived), len(t.equal))
	if len(t.survived) > 0 {
		return errors.New("some survived")
	}
	if len(stale)+len(t.stale) > 0 {
		return errors.New("equivalent.txt has stale entries")
	}
	return nil
}
