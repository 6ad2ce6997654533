package command

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
)

func whoSubcommand() *subcommand {
	return &subcommand{
		name:  "who",
		usage: "PATH",
		about: "show who holds a lock, and who waits for whom",
		help: `Shows the queue for the lock at PATH: who contends, with what they say of themselves. However
many goroutines of a tierlock process hold the lock to read, the process is one of them. Of a semaphore
it shows who has how many permits, and who waits for some.

  tierlock who /jobs/report

WAITS FOR is the number of the nearest that is in the way. "asked" is one that somebody has asked for
the lock.
NODE AGE is not the time for which the lock has been held: the goroutines of a tierlock process hand
it on among themselves, with one node. TOKEN is what tierlock break wants.
`,
		run: runWho,
	}
}

func runWho(ctx context.Context, in *invocation) error {
	path, err := in.lockPath()
	if err != nil {
		return err
	}
	return in.look(ctx, func(ctx context.Context, locks *Locks) error {
		q, err := locks.Desk.Look(ctx, path)
		switch {
		case err != nil:
			return err
		case in.output == "json":
			return writeJSON(in.stdout, q, "  ")
		}
		return in.writeQueue(q)
	})
}

func (in *invocation) writeQueue(q *inspect.Queue) error {
	w := in.stdout
	if len(q.Contenders) == 0 && q.Semaphore == nil {
		state := "nobody holds it or waits for it"
		if !q.Exists {
			state = "does not exist: " + state
		}
		fmt.Fprintf(w, "%s: %s\n", clean(q.Path), state)
	}
	if len(q.Contenders) > 0 {
		if err := writeContenders(w, q.Contenders); err != nil {
			return err
		}
		fmt.Fprintln(w, "A node's age is not a hold's: a tierlock process hands the lock on among its goroutines, with one node.")
	}
	if q.Semaphore != nil {
		if err := writeSemaphore(w, q.Path, q.Semaphore); err != nil {
			return err
		}
	}
	if q.GracePeriod != nil {
		fmt.Fprintln(w, q.GracePeriod)
	}
	for _, o := range q.Others {
		fmt.Fprintf(w, "no contender: %s (tierlock doctor says what that means)\n", clean(o.Name))
	}
	return nil
}

func writeSemaphore(w io.Writer, path string, s *inspect.Semaphore) error {
	fmt.Fprintf(w, "%s: %s\n", clean(path), s.Permits)
	if len(s.Shares) > 0 {
		t := newTable(w, "PERMITS", "NODE AGE", "SESSION", "WHO")
		for _, share := range s.Shares {
			c := share.Owner()
			t.row(strconv.Itoa(share.Count), nodeAge(c), session(c), owner(c))
		}
		if err := t.end(); err != nil {
			return err
		}
	}
	if len(s.Queue) == 0 {
		_, err := fmt.Fprintln(w, "nobody waits for permits")
		return err
	}
	fmt.Fprintln(w, "waiting for permits, in this order:")
	return writeContenders(w, s.Queue)
}

func writeContenders(w io.Writer, contenders []inspect.Contender) error {
	t := newTable(w, "SEQ", "STATE", "KIND", "NODE AGE", "WAITS FOR", "TOKEN", "SESSION", "WHO")
	for i := range contenders {
		c := &contenders[i]
		kind := c.KindName()
		if c.Pair != "" {
			kind += "+kazoo"
		}
		state := string(c.State)
		if c.Asked {
			state += ", asked"
		}
		t.row(strconv.Itoa(int(c.Sequence)), state, kind, nodeAge(c), waitsFor(c), strconv.FormatInt(c.Token, 10), session(c), owner(c))
	}
	return t.end()
}

func session(c *inspect.Contender) string {
	switch {
	case !c.Readable:
		return "?"
	case !c.Ephemeral:
		return "none!"
	case c.Session == "":
		return "-"
	}
	return c.Session
}

// waitsFor names the nearest contender that c waits for, and how many more there are.
func waitsFor(c *inspect.Contender) string {
	var parts []string
	switch {
	case c.Ahead == 1:
		parts = append(parts, fmt.Sprintf("%d", c.Nearest))
	case c.Ahead > 1:
		parts = append(parts, fmt.Sprintf("%d and %d more", c.Nearest, c.Ahead-1))
	}
	if c.Perhaps > 0 {
		parts = append(parts, fmt.Sprintf("perhaps %d", c.Perhaps))
	}
	if c.Ignored > 0 {
		parts = append(parts, fmt.Sprintf("not %d", c.Ignored))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}
