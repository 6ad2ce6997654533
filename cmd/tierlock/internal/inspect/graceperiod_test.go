package inspect_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// A newStore is a store with one lock, which it grants to a waiter when its grace period has ended.
type newStore struct{ gracePeriod *tier.GracePeriodError }

func (s newStore) Look(_ context.Context, path string) (*inspect.Queue, error) {
	waits := inspect.Contender{Node: "first", Kind: inspect.KindTierlock, State: inspect.Holds, Readable: true, Token: 7}
	q := &inspect.Queue{Path: path, Exists: true, At: time.Now()}
	if time.Now().Before(s.gracePeriod.Until) {
		waits.State, q.GracePeriod = inspect.InGracePeriod, s.gracePeriod
	}
	q.Contenders = []inspect.Contender{waits}
	return q, nil
}

func (s newStore) Glance(ctx context.Context, path string, _ *inspect.Queue) (*inspect.Queue, error) {
	return s.Look(ctx, path)
}

func (newStore) List(context.Context, string, int, bool) (*inspect.Listing, error) {
	return &inspect.Listing{Complete: true}, nil
}

func TestFollowerTellsOfTheBeginningAndTheEndOfAGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &tier.GracePeriodError{Until: time.Now().Add(10 * time.Second), Reason: "the server is new"}
		f := inspect.Follower{Reader: newStore{q}, Path: path, Every: time.Second, Limit: 1}
		var told []string
		ctx := need.Within(t, time.Minute)
		need.OK(t, f.Follow(ctx, func(s inspect.Sight) {
			if lasts := time.Now().Before(q.Until); (s.GracePeriod != nil) != lasts || (s.Queues[0].Holder() == nil) != lasts {
				t.Errorf("at %v: %v, held by %v", s.At, s.GracePeriod, s.Queues[0].Holder())
			}
			for _, e := range s.Events {
				told = append(told, fmt.Sprint(e.What, " ", e.Path, e.Text))
			}
		}))
		need.List(t, "told", told, "grace-period "+q.Error(), "queued "+path, "granting ", "held "+path)
	})
}
