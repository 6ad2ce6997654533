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

// errUnavailable says that this machine cannot run the trials.
var errUnavailable = errors.New("not available on this machine")

// plan is the share of the trials that one lab runs.
type plan struct {
	Store  string
	Faults []string
	Trials int // of each fault, in all labs
	Seed   uint64
	Share  int // this lab's, counted from 0
	Of     int
}

// conduct runs the trials in several labs and prints the outcomes as they come. The end of ctx ends it early, with an error.
func conduct(ctx context.Context, p plan, labs int, stdout io.Writer) ([]outcome, error) {
	// The directory is created here and not in the labs, so that it is removed even if a lab is killed.
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
				failed = err // the other labs have the same to say, as a rule
			}
		})
	}
	done.Wait()
	if ctx.Err() != nil {
		failed = context.Cause(ctx)
	}
	return all, failed
}

// runLab runs a lab in a process of its own, and in namespaces of its own where the site requires that. The lab stops at the end of its
// input.
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
			break // why, Wait tells
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
