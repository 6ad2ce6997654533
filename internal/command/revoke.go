package command

import (
	"context"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/zklock"
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

A tierlock program hears of it where it listens to Hold.Revoked, and Curator's where its lock was
made revocable. zk.Lock and kazoo take no notice. The request is that of Curator's Revoker: it is
written to the node of the holder, in place of what that says of itself, and takes the permission to
write there. It goes with the node; a holder that goes on holds the node that was asked.

It exits with 1 if nobody holds the lock, so that nobody was asked.
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
	return in.look(ctx, func(ctx context.Context, client *zklock.Client) error {
		lock, err := client.Lock(path)
		if err != nil {
			return usageError("%w", err)
		}
		holders, err := lock.Revoke(ctx)
		if err != nil {
			return err
		}
		r := revoked{path, append([]inspect.Contender{}, inspect.Describe(holders, time.Now())...)}
		if in.output == "json" {
			err = writeJSON(in.stdout, r, "  ")
		} else {
			for i := range r.Asked {
				fmt.Fprintf(in.stdout, "asked %s%s\n", clean(r.Asked[i].KindName()+" "+owner(&r.Asked[i])), answerOf(r.Asked[i].Kind))
			}
		}
		if err == nil && len(r.Asked) == 0 {
			return fail(exitNo, "nobody holds %s, so nobody was asked", clean(path))
		}
		return err
	})
}

// answerOf says what can be expected of a holder.
func answerOf(kind zklock.Kind) string {
	switch kind {
	case zklock.KindZKLock, zklock.KindKazoo, zklock.KindKazooRead:
		return ", whose library takes no notice"
	case zklock.KindTierlock, zklock.KindTierlockWrite, zklock.KindTierlockRead:
		return ", which gives the lock up if its program listens"
	}
	return ", which gives the lock up if it is revocable"
}
