package command

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
)

// breakOptions are the flags of break.
type breakOptions struct {
	token int64
	yes   bool
}

func breakSubcommand() *subcommand {
	o := new(breakOptions)
	return &subcommand{
		name:  "break",
		usage: "-token N [-yes] PATH",
		about: "take a lock away from its holder",
		help: `Deletes the node of the holder of the lock at PATH, if its token is still N: a token names one
grant, so nobody else is hit. tierlock who shows it.

  tierlock break /jobs/report -token 8589934601

The next in the queue has the lock at once. The former holder may still be working: it hears of
this from its server, or a sixth of its session timeout after it got the lock if that is later
(2.5 s by default), and a process that is stopped hears of nothing. Only a resource that checks
tokens is safe from it. Stop the process instead if you can.

Break asks on a terminal, and elsewhere wants -yes. It exits with 1 if it deleted nothing, because
the token is not that of the holder or the answer was no.
`,
		flags: o.flags,
		run:   o.run,
	}
}

func (o *breakOptions) flags(flags *flag.FlagSet) {
	flags.Int64Var(&o.token, "token", o.token, "`number` of the hold to end, as tierlock who shows it")
	flags.BoolVar(&o.yes, "yes", o.yes, "do not ask")
}

// broken is what break prints as JSON.
type broken struct {
	Path   string             `json:"path"`
	Token  int64              `json:"token"`
	Broken bool               `json:"broken"`
	Holder *inspect.Contender `json:"holder"` // now; null if there is none
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
	if !o.yes {
		if err := o.confirm(ctx, locks.Desk, in, path); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	former, err := locks.Desk.Break(ctx, path, o.token)
	if err != nil {
		return in.lookFailure(err)
	}
	return o.report(ctx, locks.Desk, in, path, former)
}

// confirm shows whom it is about and asks, unless the token is not that of the holder.
func (o *breakOptions) confirm(ctx context.Context, desk Desk, in *invocation, path string) error {
	look, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	q, err := desk.Look(look, path)
	if err != nil {
		return in.lookFailure(err)
	}
	var h *inspect.Contender
	for _, holder := range q.Holders() {
		if holder.Token == o.token {
			h = holder
		}
	}
	if h == nil {
		return nil // nothing will be deleted
	}
	fmt.Fprintf(in.stderr, "%s is held by %s; its node is %s old, %s.\nDelete the node with token %d? [y/N] ",
		clean(path), clean(described(h)), nodeAge(h), waiters(q.Waiting()), o.token)
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return fail(exitNo, "nothing was deleted")
	}
	return nil
}

// report says what was done, former being nil if nothing was, and who holds the lock now.
func (o *breakOptions) report(ctx context.Context, desk Desk, in *invocation, path string, former *inspect.Contender) error {
	q, err := desk.Look(ctx, path)
	if err != nil {
		q = &inspect.Queue{} // what was done is what counts
		in.say("who holds the lock now is not known: %s", clean(err.Error()))
	}
	if in.output == "json" {
		if err := writeJSON(in.stdout, broken{path, o.token, former != nil, q.Holder()}, "  "); err != nil {
			return err
		}
	}
	now := "nobody holds the lock now"
	if h := q.Holder(); h != nil {
		now = fmt.Sprintf("the lock is held by %s, token %d, %s", clean(described(h)), h.Token, waiters(q.Waiting()))
	}
	if former == nil && q.Holder() == nil && q.Semaphore != nil {
		return fail(exitNo, "nothing was deleted: %s is a semaphore, and break takes locks only; end the processes that have its permits: %s",
			clean(path), clean(q.Semaphore.Sum(owner)))
	}
	if former == nil {
		return fail(exitNo, "nothing was deleted: %d is not the token of the holder; %s", o.token, now)
	}
	if in.output == "text" {
		fmt.Fprintf(in.stdout, "deleted %s of %s\n%s\n", clean(former.Node), clean(described(former)), now)
		fmt.Fprintln(in.stdout, "The former holder may still be working until it hears of this: from its server, or T/6 after it got the "+
			"lock if that is later.")
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

// isTerminal reports whether a file is a device that is read by characters, and not the one for
// nothing, which services have instead.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
