package command

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/tier"
)

// The type breakOptions has the flags of break.
type breakOptions struct {
	token int64
	yes   bool
}

func breakSubcommand() *subcommand {
	o := new(breakOptions)
	return &subcommand{
		name:  "break",
		usage: "-token N [-yes] PATH",
		about: "take a lock, or permits, away from their holder",
		help: `Removes the holder of the lock at PATH from its queue, if its token is still N. If PATH is a
semaphore, it takes away the permits that were taken with token N. A token belongs to one process in the
queue, and break never removes another one. tierlock who shows the tokens.

  tierlock break /jobs/report -token 8589934601

The next process in the queue gets the lock, or the permits, at once. The former holder may still be
working. It learns of the loss within a third of its session timeout (5 s by default). If its process is
stopped, it learns nothing until it continues. Only resources that check tokens are safe from its late
writes. If you can, end the process instead.

On a terminal, break asks before it removes the holder. Without a terminal it needs -yes. It exits with 1
if it removed nothing, because the token does not belong to a holder, or the answer was no.
`,
		flags: o.flags,
		run:   o.run,
	}
}

func (o *breakOptions) flags(flags *flag.FlagSet) {
	flags.Int64Var(&o.token, "token", o.token, "`number` of the hold to end, as tierlock who shows it")
	flags.BoolVar(&o.yes, "yes", o.yes, "do not ask")
}

// A broken is the JSON output of break.
type broken struct {
	Path   string             `json:"path"`
	Token  int64              `json:"token"`
	Broken bool               `json:"broken"`
	Holder *inspect.Contender `json:"holder"` // the present holder; null if there is none
}

func (o *breakOptions) run(ctx context.Context, in *invocation) error {
	path, err := in.lockPath()
	if err != nil {
		return err
	}
	if o.token <= 0 {
		return usageError("break needs -token N; tierlock who %s shows the token", path)
	}
	if !o.yes && !isTerminal(os.Stdin) {
		return usageError("break asks before it deletes, but there is no terminal; to delete without a question, give -yes")
	}
	locks, err := in.dial(ctx, Options{})
	if err != nil {
		return err
	}
	defer locks.Close()
	look, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	q, err := locks.Desk.Look(look, path)
	if err != nil {
		return in.lookFailure(err)
	}
	t := o.find(locks, q)
	if t != nil && !o.yes {
		if err := o.confirm(in, path, t); err != nil {
			return err
		}
	}
	ctx, cancel = context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if t != nil {
		switch err = t.of.Break(ctx, o.token); {
		case errors.Is(err, tier.ErrReleased): // the contender has released the lock since it was read
			t = nil
		case errors.Is(err, tier.ErrUnknown):
			return in.lookFailure(fmt.Errorf("%w; %s may have been deleted, or may still be deleted", err, t.what))
		case err != nil:
			return in.lookFailure(err)
		}
	}
	return o.report(ctx, locks.Desk, in, path, t)
}

// A target is the contender that holds the lock or permits with the given token.
type target struct {
	*inspect.Contender
	what, who string // a description of what is deleted, and of its owner
	waiting   int
	of        breaker // the lock or semaphore
}

// A breaker is a lock or a semaphore that can remove a contender.
type breaker interface {
	Break(ctx context.Context, token int64) error
}

// find returns the contender with the token. If no holder of the lock or of permits has the token, find returns nil.
func (o *breakOptions) find(locks *Locks, q *inspect.Queue) *target {
	for _, c := range q.Holders() {
		if c.Token == o.token {
			return &target{c, c.Node, described(c), q.Waiting(), locks.Mutex(q.Path)}
		}
	}
	if q.Semaphore == nil {
		return nil
	}
	for i := range q.Semaphore.Shares {
		if s := &q.Semaphore.Shares[i]; s.Has(o.token) {
			c := s.Owner()
			return &target{c, "permits", owner(c), len(q.Semaphore.Queue), locks.Semaphore(q.Path, 1)} // Break works with any number of permits
		}
	}
	return nil
}

// standing describes the holder of the lock. For a semaphore it describes the holders of its permits.
func standing(q *inspect.Queue) string {
	switch h := q.Holder(); {
	case h != nil:
		return fmt.Sprintf("the lock is held by %s, token %d, %s", clean(described(h)), h.Token, waiters(q.Waiting()))
	case q.Semaphore != nil:
		return clean(q.Semaphore.Sum(owner)) + ", " + waiters(len(q.Semaphore.Queue))
	}
	return "the lock is free now"
}

// confirm shows what will be deleted, and asks for confirmation.
func (o *breakOptions) confirm(in *invocation, path string, t *target) error {
	fmt.Fprintf(in.stderr, "%s is held by %s; its node is %s old, %s.\nDelete %s with token %d? [y/N] ",
		clean(path), clean(t.who), nodeAge(t.Contender), waiters(t.waiting), clean(t.what), o.token)
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return fail(exitNo, "nothing was deleted")
	}
	return nil
}

// report prints what was deleted and the present state of the lock. If t is nil, nothing was deleted.
func (o *breakOptions) report(ctx context.Context, desk Desk, in *invocation, path string, t *target) error {
	q, err := desk.Look(ctx, path)
	if err != nil {
		q = &inspect.Queue{} // the present state could not be read, but report still prints what was deleted
		in.say("it is not known which process holds the lock now: %s", clean(err.Error()))
	}
	if in.output == "json" {
		if err := writeJSON(in.stdout, broken{path, o.token, t != nil, q.Holder()}, "  "); err != nil {
			return err
		}
	}
	if t == nil {
		return fail(exitNo, "nothing was deleted: %d is not the token of a holder; %s", o.token, standing(q))
	}
	if in.output == "text" {
		fmt.Fprintf(in.stdout, "deleted %s of %s\n%s\n", clean(t.what), clean(t.who), standing(q))
		fmt.Fprintln(in.stdout, "The former holder may continue to work until it learns of this, within a third of its session timeout.")
	}
	return nil
}

func waiters(n int) string {
	switch n {
	case 0:
		return "no process waits"
	case 1:
		return "1 process waits"
	}
	return fmt.Sprintf("%d processes wait", n)
}

// isTerminal reports whether a file is a character device, but not the null device, which a service has instead of a terminal.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
