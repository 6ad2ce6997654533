package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tierlock/tierlock/internal/second"
)

// Revoke writes to the keys of those that have the lock, in one transaction for each, that they
// are asked for it. It is nothing if nobody has the lock.
//
// A contender of another library cannot be asked: the error then wraps [errors.ErrUnsupported].
func (l *claim) Revoke(ctx context.Context) error {
	places, err := l.read(ctx)
	if err != nil {
		return l.failure("revoke", err)
	}
	for _, p := range holders(places) {
		if err := l.ask(ctx, p); err != nil {
			return l.failure("revoke", err)
		}
	}
	return nil
}

// holders returns those of a queue that have the lock: the first one, and if that reads, those
// right behind it who read.
func holders(places []place) []place {
	if len(places) == 0 || !places[0].reads {
		return places[:min(len(places), 1)]
	}
	writer := slices.IndexFunc(places, func(p place) bool { return !p.reads })
	if writer < 0 {
		return places
	}
	return places[:writer]
}

// ask has the owner of a key know that somebody wants the lock, unless it has given that up.
func (l *claim) ask(ctx context.Context, p place) error {
	if !p.ours {
		return fmt.Errorf("%s is not a key of this package, and its owner would not hear of it: %w", second.Text(p.key), errors.ErrUnsupported)
	}
	created := p.created
	return l.store.insist(ctx, func(ctx context.Context) error {
		for p.created == created && !p.asked {
			found, err := l.store.mark(ctx, p, "revoke")
			if err != nil {
				return err
			}
			p = found
		}
		return nil
	})
}
