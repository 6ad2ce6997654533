package redislock

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/logtest"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/redisserver"
	"github.com/tierlock/tierlock/internal/redisserver/redisservertest"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// ageing waits until a server is up for longer than a quarantine, so that its age says nothing any
// more.
func ageing(t *testing.T, s *redisserver.Server) {
	t.Helper()
	eventually(t, "the server is up for long", func() bool {
		info, err := redisserver.Ask(s.Addr(), "INFO", "server")
		return err == nil && len(field(info[0], "uptime_in_seconds")) > 0 && field(info[0], "uptime_in_seconds") >= "4"
	})
}

// A record of another primary is enough, however old the server is; also for the readers of a lock
// that is held, and for one who has the lock and does not know yet.
func TestNobodyIsGrantedALockInAQuarantine(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	if err := remember(s.Addr()); err != nil {
		t.Fatal(err)
	}
	p, q := startAt(t, []string{s.Addr()}), startAt(t, []string{s.Addr()})
	reader := mustAcquire(t, p.with(t, "read", second.Options{Mode: second.Reading}))
	ageing(t, s)
	untold := p.anew("untold")
	if v := p.does(t, queue.Command{Op: queue.Enter, Ref: untold}).View; !v.Has {
		t.Fatalf("%+v", v)
	}
	renew(t, s)
	begun := time.Now()

	if v := p.does(t, queue.Command{Op: queue.Beat, Among: []queue.Ref{untold}}).Views[0]; v.Has || v.Again == 0 || !v.Quarantined {
		t.Errorf("one that was not told has the lock: %+v", v)
	}
	_, err := q.at(t, "free").TryAcquire(soon(t))
	var quarantine *second.QuarantineError
	if !errors.Is(err, second.ErrLocked) || !errors.As(err, &quarantine) {
		t.Fatalf("a try: %v, want ErrLocked because of a quarantine", err)
	}
	if d := quarantine.Until.Sub(begun); d < ttl-50*time.Millisecond || time.Until(quarantine.Until) > ttl {
		t.Errorf("a quarantine of %v, want %v", d, ttl)
	}
	free := begin(t, q.at(t, "free").Acquire)
	other := begin(t, q.with(t, "read", second.Options{Mode: second.Reading}).Acquire)
	time.Sleep(ttl / 2)
	if value, err := redisserver.Ask(s.Addr(), "GET", "free"); err != nil || value[0] != "" {
		t.Errorf("the key of a lock that nobody has says %q, %v", value, err)
	}
	for what, w := range map[string]*wait{"a free lock": free, "a lock that is read": other} {
		c := w.must(t)
		if d := time.Since(begun); d < ttl-50*time.Millisecond {
			t.Errorf("%s was granted after %v", what, d)
		}
		mustRelease(t, c)
	}
	if err := reader.Err(); err != nil {
		t.Errorf("the reader that was there: %v", err)
	}
	mustRelease(t, reader)
	p.does(t, queue.Command{Op: queue.Leave, Ref: untold})
}

// A server that was promoted may have lost everything, the record as well.
func TestPromotedServerWithoutARecordOpensAQuarantine(t *testing.T) {
	t.Parallel()
	e := redisservertest.StartEnsemble(t, 2, redisserver.Config{NoSync: true})
	old, replica := e.Members[0], e.Members[1]
	e.Isolate(old) // before anything was written
	ageing(t, replica)
	if err := e.Promote(replica); err != nil {
		t.Fatal(err)
	}
	p := startAt(t, []string{replica.Addr()})
	begun := time.Now()
	mustRelease(t, mustAcquire(t, p.at(t, lockPath(t))))
	if d := time.Since(begun); d < ttl-50*time.Millisecond {
		t.Errorf("granted after %v, want a quarantine of %v", d, ttl)
	}
}

// locksAt returns the locks of a process, which has met the primary.
func locksAt(t *testing.T, s *redisserver.Server, opts ...Option) *tier.Registry {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { client.Close() })
	locks, err := New(client, append([]Option{WithLeaseTTL(ttl)}, opts...)...)
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
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	log, logger := logtest.New(slog.LevelInfo)
	const ttl = 5 * time.Second // of which the age of the server takes one
	locks, looker := locksAt(t, s, WithLeaseTTL(ttl), WithLogger(logger)), locksAt(t, s, WithLeaseTTL(ttl))
	mu := locks.Mutex(lockPath(t))

	var q *tier.QuarantineError
	if err := locks.Err(); !errors.As(err, &q) || time.Until(q.Until) > ttl || q.Reason != "the server started less than a lease ago" {
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
	granted := make(chan *tier.Hold, 1)
	go func() {
		hold, err := mu.Acquire(soon(t))
		if err != nil {
			t.Error(err)
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
	eventually(t, "the quarantine is over", func() bool { return locks.Err() == nil && looker.Err() == nil })
	if queue, err := looker.Mutex(lockPath(t)).Contenders(soon(t)); err != nil || len(queue) != 1 || queue[0].Quarantined {
		t.Errorf("after the quarantine: %+v, %v", queue, err)
	}
	if _, err := looker.Mutex(lockPath(t)).TryAcquire(soon(t)); !errors.Is(err, tier.ErrLocked) || errors.As(err, new(*tier.QuarantineError)) {
		t.Errorf("a try after the quarantine: %v, want ErrLocked", err)
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
	if lines := log.Lines(slog.LevelWarn, "redislock: no grants until "); len(lines) != 1 {
		t.Errorf("logged %q, want one line: %s", lines, log)
	}
}

// A holder whom the promoted server knows keeps its lock, and is seen to.
func TestHolderOfBeforeIsNotQuarantined(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	holder := locksAt(t, s, WithNewServer())
	hold, err := holder.Mutex(lockPath(t)).Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	renew(t, s)
	looker := locksAt(t, s)
	queue, err := looker.Mutex(lockPath(t)).Contenders(soon(t))
	if err != nil || len(queue) != 1 || queue[0].Quarantined || !errors.As(looker.Err(), new(*tier.QuarantineError)) {
		t.Errorf("%+v, %v, %v; want the holder in a quarantine", queue, err, looker.Err())
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
}

// Only the first process can say that a server is new, and only of its first primary.
func TestNewServerHasNoQuarantine(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	first := locksAt(t, s, WithNewServer(), WithLeaseTTL(time.Minute))
	hold, err := first.Mutex(lockPath(t)).TryAcquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
	mustRelease(t, mustAcquire(t, startAt(t, []string{s.Addr()}).at(t, lockPath(t)))) // for others there is none, either
	refusedAsNew(t, s)
	renew(t, s)
	if _, err := locksAt(t, s).Mutex(lockPath(t)).TryAcquire(soon(t)); !errors.As(err, new(*tier.QuarantineError)) {
		t.Errorf("after a promotion: %v, want a quarantine", err)
	}
}

// refusedAsNew checks that a process cannot say that the server is new.
func refusedAsNew(t *testing.T, s *redisserver.Server) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	locks, err := New(client, WithNewServer())
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if _, err := locks.Mutex(lockPath(t)).Acquire(soon(t)); !errors.Is(err, errUsed) || !errors.Is(locks.Err(), errUsed) {
		t.Errorf("%v, %v; want %v", err, locks.Err(), errUsed)
	}
}

// What another process has written a moment ago counts, and so do data and a promotion; not what the process has
// written itself, which may not have heard that its word was taken.
func TestServerWithARecordIsNotNew(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	locksAt(t, s).Close()
	refusedAsNew(t, s)
	if _, err := redisserver.Ask(s.Addr(), "FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	p := startAt(t, []string{s.Addr()}, WithNewServer())
	p.declared.Store(false)
	if err := p.examine(soon(t)); err != nil || !p.declared.Load() {
		t.Errorf("what was said before: %v", err)
	}
	renew(t, s)
	if _, err := redisserver.Ask(s.Addr(), "FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	refusedAsNew(t, s)
}

// The server counts from its start, also if its clock is set back behind that.
func TestServerWhoseClockIsSetBackBehindItsStartIsANewOne(t *testing.T) {
	t.Parallel()
	source := strings.Replace(lockScript.text, "redis.call('INFO', 'server')", "('uptime_in_seconds:-3600')", 1)
	if source == lockScript.text {
		t.Fatal("the script asks for the age in another way")
	}
	p := start(t)
	words, err := outside(t).Eval(soon(t), source, keysOf(lockPath(t)), p.args("meet", queue.Ref{})...).StringSlice()
	if err != nil || !introduced(words) || words[2] != "0" {
		t.Errorf("%q, %v, want an age of 0", words, err)
	}
}
