package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
)

func revokeSubcommand() *subcommand {
	return &subcommand{
		name:  "revoke",
		usage: "PATH",
		about: "ask the holder of a lock to release it",
		help: `Asks the holder of the lock at PATH, or all its readers, to release it. Holders may ignore the request
and keep the lock; tierlock break takes a lock away.

  tierlock revoke /jobs/report

A program learns of the request through Hold.RevokeRequested. tierlock run reacts to it only with
-revocable. The request stays at the queue entry until the holder releases the lock.

It exits with 1 if the lock is free. Permits of a semaphore cannot be revoked.
`,
		run: runRevoke,
	}
}

// A revoked is the JSON output of revoke.
type revoked struct {
	Path  string              `json:"path"`
	Asked []inspect.Contender `json:"asked"` // the holders in their state before the request
}

func runRevoke(ctx context.Context, in *invocation) error {
	path, err := in.lockPath()
	if err != nil {
		return err
	}
	return in.look(ctx, func(ctx context.Context, locks *Locks) error {
		holders, err := locks.Desk.Revoke(ctx, path)
		if errors.Is(err, errors.ErrUnsupported) {
			return fail(exitNo, "%w", err)
		}
		if err != nil {
			return err
		}
		r := revoked{path, append([]inspect.Contender{}, holders...)}
		if in.output == "json" {
			err = writeJSON(in.stdout, r, "  ")
		} else {
			for i := range r.Asked {
				fmt.Fprintf(in.stdout, "asked %s%s\n", clean(described(&r.Asked[i])), answerOf(&r.Asked[i]))
			}
		}
		if err == nil && len(r.Asked) == 0 {
			return nobodyAsked(ctx, locks.Desk, path)
		}
		return err
	})
}

// nobodyAsked returns an error that says why no holder was asked.
func nobodyAsked(ctx context.Context, desk Desk, path string) error {
	if q, err := desk.Look(ctx, path); err == nil && q.Semaphore != nil {
		return fail(exitNo, "%s is a semaphore; permits cannot be revoked", clean(path))
	}
	return fail(exitNo, "%s is free: there is no holder to ask", clean(path))
}

// answerOf says how a holder will probably react to the request.
func answerOf(c *inspect.Contender) string {
	switch c.Kind {
	case "zk.Lock", "kazoo", "kazoo-read":
		return "; its library ignores requests"
	case inspect.KindTierlock, "tierlock-write", inspect.KindTierlockRead:
		switch {
		case strings.HasPrefix(c.Label, revocableLabel):
			return "; it ends its command"
		case strings.HasPrefix(c.Label, runLabel+everyLabel), strings.HasPrefix(c.Label, runLabel+cronLabel):
			return "; it releases the lock between two slots"
		case strings.HasPrefix(c.Label, runLabel):
			return "; it ignores requests, because run was started without -revocable"
		}
		return "; it releases the lock if the program listens"
	}
	return "; it releases the lock if it is revocable"
}
