package redislock

import (
	"errors"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/redisserver"
	"github.com/tierlock/tierlock/internal/redisserver/redisservertest"
	"github.com/tierlock/tierlock/internal/second"
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
	reading, err := p.Claim("read", second.Options{Mode: second.Reading})
	if err != nil {
		t.Fatal(err)
	}
	reader := mustAcquire(t, lock{reading.(*claim)})
	untold := enrolled(t, p, "untold")
	if err := untold.enqueue(soon(t), nil); err != nil || !untold.newest().has {
		t.Fatal(err, untold.newest())
	}
	ageing(t, s)
	renew(t, s)
	begun := time.Now()

	if err := untold.ask(soon(t), "beat"); err != nil || untold.newest().has || untold.newest().wait == 0 {
		t.Errorf("%v: one that was not told has the lock: %+v", err, untold.newest())
	}
	_, err = q.at(t, "free").TryAcquire(soon(t))
	var quarantine *second.QuarantineError
	if !errors.Is(err, second.ErrLocked) || !errors.As(err, &quarantine) {
		t.Fatalf("a try: %v, want ErrLocked because of a quarantine", err)
	}
	if d := quarantine.Until.Sub(begun); d < ttl-50*time.Millisecond || time.Until(quarantine.Until) > ttl {
		t.Errorf("a quarantine of %v, want %v", d, ttl)
	}
	free := begin(t, q.at(t, "free").Acquire)
	sharing, err := q.Claim("read", second.Options{Mode: second.Reading})
	if err != nil {
		t.Fatal(err)
	}
	other := begin(t, lock{sharing.(*claim)}.Acquire)
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
	untold.discard()
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
