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
		help: `Removes the holder of the lock at PATH from its queue, if its token is still N. Of a semaphore it
takes away the permits that were taken with token N. A token names one contender, and no other is
removed. tierlock who shows it.

  tierlock break /jobs/report -token 8589934601

The next in the queue has the lock, or the permits, at once. The former holder may still be working:
it hears of this within a third of its session timeout (5 s by default), and a process that is stopped
hears of nothing. Only a resource that checks tokens is safe from it. Stop the process instead if you
can.

Break asks on a terminal, and elsewhere wants -yes. It exits with 1 if it removed nothing, because
the token is not that of a holder or the answer was no.
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
		return usageError("break wants -token N, which tierlock who %s shows", path)
	}
	if !o.yes && !isTerminal(os.Stdin) {
		return usageError("break asks before it deletes, and there is no terminal to ask on; give -yes if you are sure")
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
			return in.lookFailure(fmt.Errorf("%w; %s may have been deleted, or may yet be", err, t.what))
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
	return "nobody holds the lock now"
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
		in.say("who holds the lock now is not known: %s", clean(err.Error()))
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
		fmt.Fprintln(in.stdout, "The former holder may still be working until it hears of this, within a third of its session timeout.")
	}
	return nil
}

func waiters(n int) string {
	switch n {
	case 0:
		return "nobody waits"
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
