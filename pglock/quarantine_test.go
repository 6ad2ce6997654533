package pglock

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/logtest"
	"github.com/tierlock/tierlock/internal/pgserver"
	"github.com/tierlock/tierlock/internal/pgserver/pgservertest"
	"github.com/tierlock/tierlock/tier"
)

// A flavour is one of the two ways in which locks are in PostgreSQL.
type flavour struct {
	name   string
	open   func(*pgxpool.Pool, ...Option) (*tier.Registry, error)
	forget string // has the server be another one than before
}

var flavours = []flavour{
	{"tables", New, "UPDATE tierlock.promotion SET timeline = 'another'"},
	{"advisory", NewAdvisory, "UPDATE tierlock.server SET life = 'another'"},
}

// locksAt returns the locks of a process, once it is connected.
func (f flavour) locksAt(t *testing.T, url string, opts ...Option) *tier.Registry {
	t.Helper()
	pool := poolAt(t, url, nil)
	t.Cleanup(pool.Close)
	locks, err := f.open(pool, append([]Option{WithLeaseTTL(ttl)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	if _, err := locks.Mutex(lockPath(t)).Contenders(soon(t)); err != nil {
		t.Fatal(err)
	}
	return locks
}

func TestQuarantineIsTold(t *testing.T) {
	t.Parallel()
	addr := pgservertest.Start(t, pgserver.Config{NoSync: true}).Addr()
	url, outside := pgserver.PlainURL(addr), migrated(t, addr)
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			if err := f.locksAt(t, url).Mutex(lockPath(t)).Do(soon(t), func(context.Context) error { return nil }); err != nil { // the lease is known
				t.Fatal(err)
			}
			if _, err := outside.Exec(soon(t), f.forget); err != nil {
				t.Fatal(err)
			}
			log, logger := logtest.New(slog.LevelInfo)
			locks := f.locksAt(t, url, WithLogger(logger))
			mu := locks.Mutex(lockPath(t))

			var q *tier.QuarantineError
			if err := locks.Err(); !errors.As(err, &q) || q.Until.Before(time.Now()) || time.Until(q.Until) > ttl {
				t.Fatalf("Err: %v, want a quarantine of %v", err, ttl)
			}
			if _, err := mu.TryAcquire(soon(t)); !errors.Is(err, tier.ErrLocked) || !errors.As(err, &q) || !strings.HasSuffix(err.Error(), ": "+q.Error()) {
				t.Errorf("TryAcquire: %v, want ErrLocked as there is a quarantine", err)
			}
			var wait *tier.WaitError
			_, err := locks.Mutex(lockPath(t), tier.WithMaxWait(ttl/10)).Acquire(soon(t))
			if !errors.As(err, &wait) || wait.Quarantine == nil || !errors.As(err, &q) || !strings.Contains(err.Error(), q.Error()) {
				t.Errorf("Acquire with a limit: %v, want that of a quarantine", err)
			}
			looker := f.locksAt(t, url)
			granted := make(chan *tier.Hold, 1)
			go func() {
				hold, err := mu.Acquire(soon(t))
				if err != nil || time.Now().Before(q.Until.Add(-time.Second/10)) {
					t.Errorf("granted at %v: %v, %v", time.Now(), q, err)
				}
				granted <- hold
			}()
			eventually(t, "the first in the queue has no lock yet", func() bool {
				queue, err := looker.Mutex(lockPath(t)).Contenders(soon(t))
				return err == nil && len(queue) > 0 && queue[0].Quarantined
			})
			hold := <-granted
			if hold == nil {
				return
			}
			if queue, err := mu.Contenders(soon(t)); err != nil || len(queue) != 1 || queue[0].Quarantined || locks.Err() != nil {
				t.Errorf("after the quarantine: %+v, %v, %v", queue, err, locks.Err())
			}
			if _, err := looker.Mutex(lockPath(t)).TryAcquire(soon(t)); !errors.Is(err, tier.ErrLocked) || errors.As(err, new(*tier.QuarantineError)) {
				t.Errorf("a try after the quarantine: %v, want ErrLocked", err)
			}
			if err := hold.Release(); err != nil {
				t.Error(err)
			}
			if lines := log.Lines(slog.LevelWarn, "pglock: no grants until "); len(lines) != 1 {
				t.Errorf("logged %q, want one line: %s", lines, log)
			}
		})
	}
}

// A holder whom the server knows keeps its lock, and is seen to.
func TestHolderOfBeforeIsNotQuarantined(t *testing.T) {
	t.Parallel()
	addr := pgservertest.Start(t, pgserver.Config{NoSync: true}).Addr()
	url, outside := pgserver.PlainURL(addr), migrated(t, addr)
	f := flavours[0]
	holder, locks := f.locksAt(t, url), f.locksAt(t, url)
	hold, err := holder.Mutex(lockPath(t)).Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := outside.Exec(soon(t), f.forget); err != nil {
		t.Fatal(err)
	}
	queue, err := locks.Mutex(lockPath(t)).Contenders(soon(t))
	if err != nil || len(queue) != 1 || queue[0].Quarantined || !errors.As(locks.Err(), new(*tier.QuarantineError)) {
		t.Errorf("%+v, %v, %v; want the holder in a quarantine", queue, err, locks.Err())
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
}

// A server that was started again before anybody has had a lock there, or promoted, is taken for one with a past. Only
// the first process can say that it is new.
func TestNewServerHasNoQuarantine(t *testing.T) {
	t.Parallel()
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := pgservertest.Start(t, pgserver.Config{NoSync: true})
			url, outside := pgserver.PlainURL(s.Addr()), migrated(t, s.Addr())
			if _, err := outside.Exec(soon(t), "UPDATE tierlock.server SET life = 'another'"); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			first := f.locksAt(t, url, WithNewServer(), WithLeaseTTL(time.Minute))
			hold, err := first.Mutex(lockPath(t)).Acquire(soon(t))
			if err != nil {
				t.Fatalf("after %v: %v", time.Since(begun), err)
			}
			f.locksAt(t, url) // for whom there is none, either
			if err := hold.Release(); err != nil {
				t.Error(err)
			}
			for _, other := range flavours { // whose record it is does not matter
				other.refused(t, url)
			}

			if _, err := outside.Exec(soon(t), f.forget); err != nil {
				t.Fatal(err)
			}
			if _, err := f.locksAt(t, url).Mutex(lockPath(t)).TryAcquire(soon(t)); !errors.As(err, new(*tier.QuarantineError)) {
				t.Errorf("after the next promotion: %v, want a quarantine", err)
			}
		})
	}
}

// refused checks that a process cannot say that the server is new.
func (f flavour) refused(t *testing.T, url string) {
	t.Helper()
	pool := poolAt(t, url, nil)
	defer pool.Close()
	locks, err := f.open(pool, WithNewServer())
	if err == nil {
		defer locks.Close()
		_, err = locks.Mutex(lockPath(t)).Acquire(soon(t))
	}
	if !errors.Is(err, errUsed) {
		t.Errorf("%s: %v, want %v", f.name, err, errUsed)
	}
}

// What another process has written a moment ago counts, and so does a promotion since the schema was made; not what
// the process has written itself, which may not have heard that its word was taken.
func TestServerWithARecordIsNotNew(t *testing.T) {
	t.Parallel()
	s := pgservertest.Start(t, pgserver.Config{NoSync: true})
	outside := migrated(t, s.Addr())
	conn, err := outside.Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, sql := range []string{
		"UPDATE tierlock.promotion SET timeline = 'another'",
		"SELECT tierlock.open(gen_random_uuid(), 1000, 'host', 1, '')",
		"SELECT tierlock.open(gen_random_uuid(), 1000, 'host', 1, ''); UPDATE tierlock.promotion SET longest_ms = 0",
		"SELECT tierlock.quarantine(1000)",
	} {
		const asNew = "UPDATE tierlock.promotion SET timeline = tierlock.timeline(), longest_ms = 0; DELETE FROM tierlock.session; UPDATE tierlock.server SET ttl_ms = 0"
		if _, err := outside.Exec(soon(t), asNew); err != nil {
			t.Fatal(err)
		}
		f := newFirstUse()
		for range 2 {
			if err := f.declare(soon(t), conn.Conn(), 1000); err != nil {
				t.Errorf("a new server: %v", err)
			}
			f.taken.Store(false)
		}
		if err := newFirstUse().declare(soon(t), conn.Conn(), 1000); !errors.Is(err, errUsed) {
			t.Errorf("another process: %v, want %v", err, errUsed)
		}
		if _, err := outside.Exec(soon(t), asNew+";"+sql); err != nil {
			t.Fatal(err)
		}
		if err := newFirstUse().declare(soon(t), conn.Conn(), 1000); !errors.Is(err, errUsed) {
			t.Errorf("after %s: %v, want %v", sql, err, errUsed)
		}
	}
}
