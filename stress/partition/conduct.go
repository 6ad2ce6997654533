package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/tierlock/tierlock/stress/internal/twin"
)

// errUnavailable is the error if this machine cannot run the trials.
var errUnavailable = errors.New("not available on this machine")

// plan says which trials there are, and which of them a lab runs.
type plan struct {
	Store  string
	Faults []string
	Trials int // number of trials of each fault, in all labs together
	Seed   uint64
	Share  int // the number of this lab, from 0
	Of     int
}

// The function conduct runs the trials in several labs and prints each outcome as soon as it is known. If ctx ends, conduct stops early
// and returns an error.
func conduct(ctx context.Context, p plan, labs int, stdout io.Writer) ([]outcome, error) {
	// The directory is created here and not in the labs. It is therefore removed even if a lab is killed.
	dir, err := os.MkdirTemp("", "tierlock-partition-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // root's PostgreSQL runs as another user
		return nil, err
	}
	p.Of = min(labs, p.Trials*len(p.Faults))
	var all []outcome
	var failed error
	var mu sync.Mutex
	var done sync.WaitGroup
	for p.Share = range p.Of {
		share := p
		done.Go(func() {
			err := runLab(ctx, share, dir, func(o outcome) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, o)
				fmt.Fprintln(stdout, o)
			})
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				failed = err // the first error is enough: usually all labs fail for the same reason
			}
		})
	}
	done.Wait()
	if ctx.Err() != nil {
		failed = context.Cause(ctx)
	}
	return all, failed
}

// runLab runs a lab in a new process. If the site requires namespaces, the process gets its own. The lab stops when its input ends.
func runLab(ctx context.Context, p plan, dir string, show func(outcome)) error {
	cmd, err := twin.Command(context.Background(), "lab", "TMPDIR="+dir)
	if err != nil {
		return err
	}
	if siteOf(p.Store).namespaces {
		if err := intoNamespaces(cmd); err != nil {
			return fmt.Errorf("%w: %w", errUnavailable, err)
		}
	}
	c, err := twin.Start(cmd, p)
	if err != nil {
		return fmt.Errorf("%w: namespaces: %w", errUnavailable, err)
	}
	defer context.AfterFunc(ctx, func() { _ = c.In.Close() })()
	for {
		var o outcome
		if err := c.Out.Decode(&o); err != nil {
			break // Wait returns the reason
		}
		show(o)
	}
	err = cmd.Wait()
	switch {
	case err == nil:
		return nil
	case cmd.ProcessState.ExitCode() == exitUnavailable:
		return fmt.Errorf("%w: see above", errUnavailable)
	default:
		return fmt.Errorf("a lab failed: %w", err)
	}
}
