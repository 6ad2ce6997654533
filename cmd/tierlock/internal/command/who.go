package command

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
)

func whoSubcommand() *subcommand {
	return &subcommand{
		name:  "who",
		usage: "PATH",
		about: "show the holder of a lock and its queue",
		help: `Shows the holder of the lock at PATH and the processes that wait, with host, process ID and label. A
process is one entry, however many of its goroutines hold the lock or wait. Of a semaphore it shows
which processes have permits, how many, and which wait. If a program saved a value beside the lock, it
shows the size and the age; tierlock value prints the content. If these credentials may not read the
value, or the store executes no writes, it says so and shows the rest.

  tierlock who /jobs/report

WAITS FOR is the SEQ of the nearest entry ahead that must go first. "asked" marks a holder that tierlock
revoke has asked to release the lock. NODE AGE is the age of the entry, not how long the lock has been
held: the goroutines of a process pass the lock to each other under one entry. TOKEN is the number to
pass to tierlock break.
`,
		run: runWho,
	}
}

// valueTimeout limits the wait for the value, so that who shows the queue of a store that answers reads and no writes.
const valueTimeout = 5 * time.Second

func runWho(ctx context.Context, in *invocation) error {
	path, err := in.lockPath()
	if err != nil {
		return err
	}
	return in.look(ctx, func(ctx context.Context, locks *Locks) error {
		q, err := locks.Desk.Look(ctx, path)
		if err != nil {
			return err
		}
		if in.output != "json" {
			if err := in.writeQueue(q); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, valueTimeout)
		defer cancel()
		v, err := valueAt(ctx, locks, path)
		if err != nil { // reading a value takes more permissions than reading the queue, and on most stores a write
			in.say("the value beside the lock cannot be read: %v", err)
			v = nil
		}
		switch {
		case in.output == "json":
			return writeJSON(in.stdout, struct {
				*inspect.Queue
				Value *value `json:"value,omitempty"`
			}{q, v}, "  ")
		case v != nil:
			v.write(in.stdout)
		}
		return nil
	})
}

func (in *invocation) writeQueue(q *inspect.Queue) error {
	w := in.stdout
	if len(q.Contenders) == 0 && q.Semaphore == nil {
		state := "free, with no waiters"
		if !q.Exists {
			state = "does not exist: " + state
		}
		fmt.Fprintf(w, "%s: %s\n", clean(q.Path), state)
	}
	if len(q.Contenders) > 0 {
		if err := writeContenders(w, q.Contenders); err != nil {
			return err
		}
		fmt.Fprintln(w, "NODE AGE is the age of the queue entry, not how long the lock has been held.")
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
		fmt.Fprintf(w, "not a queue entry: %s (see tierlock doctor)\n", clean(o.Name))
	}
	return nil
}

func writeSemaphore(w io.Writer, path string, s *inspect.Semaphore) error {
	fmt.Fprintf(w, "%s: %s\n", clean(path), s.Permits)
	if len(s.Shares) > 0 {
		t := newTable(w, "PERMITS", "NODE AGE", "TOKEN", "SESSION", "WHO")
		for _, share := range s.Shares {
			c := share.Owner()
			t.row(strconv.Itoa(share.Count), nodeAge(c), tokens(&share), session(c), owner(c))
		}
		if err := t.end(); err != nil {
			return err
		}
	}
	if len(s.Queue) == 0 {
		_, err := fmt.Fprintln(w, "no process waits for permits")
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

// The function tokens lists the tokens with which a process has taken its permits.
func tokens(s *inspect.Share) string {
	if len(s.Tokens) == 0 {
		return "?"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(s.Tokens), " ", ","), "[]")
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

// waitsFor names the nearest contender for which c waits, and says for how many more contenders it waits.
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
