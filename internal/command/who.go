package command

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tierlock/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/zklock"
)

func whoSubcommand() *subcommand {
	return &subcommand{
		name:  "who",
		usage: "PATH",
		about: "show who holds a lock, and who waits for whom",
		help: `Shows the queue for the lock at PATH: contenders of tierlock, Curator, kazoo and zk.Lock by the
names of their nodes, with what they say of themselves, and the other children of the path.

  tierlock who /jobs/report

STATE is what the rules of each library make of the order: not all of them wait for all others, so
several can hold. "perhaps" is a kazoo lock that waits only with extra_lock_patterns=["lock-"].
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
	return in.look(ctx, func(ctx context.Context, client *zklock.Client) error {
		q, err := inspect.Look(ctx, client, path)
		switch {
		case err != nil:
			return err
		case in.output == "json":
			return writeJSON(in.stdout, q, "  ")
		}
		return writeQueue(in.stdout, q)
	})
}

func writeQueue(w io.Writer, q *inspect.Queue) error {
	if len(q.Contenders) == 0 {
		state := "nobody holds it or waits for it"
		if !q.Exists {
			state = "does not exist: " + state
		}
		fmt.Fprintf(w, "%s: %s\n", clean(q.Path), state)
	} else if err := writeContenders(w, q); err != nil {
		return err
	}
	for _, o := range q.Others {
		fmt.Fprintf(w, "no contender: %s (tierlock doctor says what that means)\n", clean(o.Name))
	}
	return nil
}

func writeContenders(w io.Writer, q *inspect.Queue) error {
	t := newTable(w, "SEQ", "STATE", "KIND", "NODE AGE", "WAITS FOR", "TOKEN", "SESSION", "WHO")
	for i := range q.Contenders {
		c := &q.Contenders[i]
		kind := c.KindName()
		if c.Pair != "" {
			kind += "+kazoo"
		}
		session := c.Session
		switch {
		case !c.Readable:
			session = "?"
		case !c.Ephemeral:
			session = "none!"
		}
		t.row(strconv.Itoa(int(c.Sequence)), string(c.State), kind, nodeAge(c), waitsFor(c), strconv.FormatInt(c.Token, 10), session, owner(c))
	}
	if err := t.end(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "A node's age is not a hold's: a tierlock process hands the lock on among its goroutines, with one node.")
	return err
}

// waitsFor names the nearest contender that c waits for, and how many more there are.
func waitsFor(c *inspect.Contender) string {
	var parts []string
	switch {
	case c.Ahead == 1:
		parts = append(parts, fmt.Sprintf("%d", c.BehindSequence()))
	case c.Ahead > 1:
		parts = append(parts, fmt.Sprintf("%d and %d more", c.BehindSequence(), c.Ahead-1))
	}
	if c.Unsure > 0 {
		parts = append(parts, fmt.Sprintf("perhaps %d", c.Unsure))
	}
	if c.Ignored > 0 {
		parts = append(parts, fmt.Sprintf("not %d", c.Ignored))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}
