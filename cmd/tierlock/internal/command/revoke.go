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
		about: "ask whoever holds a lock to give it up",
		help: `Asks the holder of the lock at PATH to give it up; all of them, if they read. It is a request that
they may do with as they like, and nobody loses the lock by it: tierlock break is what takes a lock
away.

  tierlock revoke /jobs/report

A tierlock program hears of it where it listens to Hold.RevokeRequested; tierlock run does with -revocable,
and else goes on. The request goes with the place in the queue; a holder that goes on holds the one
that was asked.

It exits with 1 if nobody holds the lock, so that nobody was asked. Permits of a semaphore cannot be
asked for.
`,
		run: runRevoke,
	}
}

// revoked is what revoke prints as JSON.
type revoked struct {
	Path  string              `json:"path"`
	Asked []inspect.Contender `json:"asked"` // as they were before
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

// nobodyAsked says why nobody was.
func nobodyAsked(ctx context.Context, desk Desk, path string) error {
	if q, err := desk.Look(ctx, path); err == nil && q.Semaphore != nil {
		return fail(exitNo, "%s is a semaphore: permits cannot be asked for", clean(path))
	}
	return fail(exitNo, "nobody holds %s, so nobody was asked", clean(path))
}

// answerOf says what can be expected of a holder.
func answerOf(c *inspect.Contender) string {
	switch c.Kind {
	case "zk.Lock", "kazoo", "kazoo-read":
		return ", whose library takes no notice"
	case inspect.KindTierlock, "tierlock-write", inspect.KindTierlockRead:
		switch {
		case strings.HasPrefix(c.Label, revocableLabel):
			return ", which ends its command"
		case strings.HasPrefix(c.Label, runLabel):
			return ", which takes no notice: run listens with -revocable only"
		}
		return ", which gives the lock up if its program listens"
	}
	return ", which gives the lock up if it is revocable"
}
