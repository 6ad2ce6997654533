//go:build unix

package everystore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/etcdlock"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/mysqllock"
	"github.com/tierlock/tierlock/pglock"
	"github.com/tierlock/tierlock/redislock"
	"github.com/tierlock/tierlock/tier"
)

func TestEveryStore(t *testing.T) {
	for _, store := range stores {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			addr, connect := store.start(t), store.connect
			s := site{addr, connect}
			run := func(name string, test func(*testing.T)) {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t)
				})
			}
			run("published", func(t *testing.T) { testPublished(t, s) })
			run("fences", func(t *testing.T) { testFences(t, s, store.name) })
			if store.name != "ZooKeeper" { // ZooKeeper has no commands for its queues
				run("unknown command", func(t *testing.T) { testUnknownCommand(t, s) })
			}
			if store.deface != nil { // PostgreSQL allows only printable text in the name of a session, and shortens it
				run("foreign text", func(t *testing.T) { testForeignText(t, s, store.deface) })
			}
		})
	}
}

// A later release may have commands that this release does not know. A store refuses such a command, and changes nothing.
func testUnknownCommand(t *testing.T, s site) {
	c := waittest.Grant(held(t, s)).(*queue.Contender)
	a := c.Store().Do(soon(t), queue.Command{Op: "unknown", Ref: c.Ref()})
	need.That(t, fmt.Sprintf("%+v, want Denied", a), a.Outcome == queue.Denied && errors.Is(a.Err, errors.ErrUnsupported) && a.Away == nil)
}

// An observer gets what a leader publishes, and must not take it for the next leader's. The test therefore compares the tokens in the queue
// and in the value.
func testPublished(t *testing.T, s site) {
	ctx, path := soon(t), pathOf(t)
	next, stop := iter.Pull2(election.New(s.process(t), path).Observe(ctx))
	defer stop()
	observed := func(published string) (term int64) {
		t.Helper()
		seen, err, ok := next()
		need.Must(t, fmt.Sprintf("observed: %v, %v", ok, err), ok && err == nil)
		need.Equal(t, "published", string(seen.Published), published)
		return seen.Token
	}
	for _, data := range []string{"first", "second"} {
		e, ended, resign := election.New(s.process(t), path), make(chan error, 1), make(chan struct{})
		go func() {
			ended <- e.Run(ctx, func(ctx context.Context, _ int64) error {
				select {
				case <-resign:
				case <-ctx.Done():
				}
				return election.ErrStop
			})
		}()
		term := observed("")
		var err error
		waittest.Eventually(t, "the first in the queue leads", func() bool {
			err = e.Publish(ctx, []byte(data))
			return !errors.Is(err, election.ErrNotLeader)
		})
		need.OK(t, err)
		need.Equal(t, "the term of the leader that has published", observed(data), term)
		close(resign)
		need.OK(t, <-ended)
	}
}

// The map fences contains the guarded writes of the stores that have them, by the prefix of the store's name.
var fences = map[string]func(context.Context, *tier.Hold) error{
	"etcd": func(ctx context.Context, hold *tier.Hold) error {
		_, err := etcdlock.Txn(ctx, hold)
		return err
	},
	"Redis": func(ctx context.Context, hold *tier.Hold) error {
		_, err := redislock.Eval(ctx, hold, "return 1", nil)
		return err
	},
	"MySQL": func(ctx context.Context, hold *tier.Hold) error {
		return mysqllock.Tx(ctx, hold, func(*sql.Tx) error { return nil })
	},
	"PostgreSQL": func(ctx context.Context, hold *tier.Hold) error {
		return pglock.Tx(ctx, hold, func(pgx.Tx) error { return nil })
	},
}

// A guarded write works only with a lock of the same store. The store has to check that, because grants of other stores may have the same
// type.
func testFences(t *testing.T, s site, name string) {
	hold := held(t, s)
	for of, write := range fences {
		err := write(soon(t), hold)
		if own := strings.HasPrefix(name, of); own && err != nil || !own && (err == nil || !strings.Contains(err.Error(), "not on "+of)) {
			t.Errorf("a write of %s under a lock of %s: %v", of, name, err)
		}
	}
}

// The function held acquires the test's lock in another process, and returns the hold.
func held(t *testing.T, s site) *tier.Hold {
	t.Helper()
	return need.Get(s.process(t).Mutex(pathOf(t)).Acquire(soon(t)))(t)
}
