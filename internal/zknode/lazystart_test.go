package zknode_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// startLazily dials with a context that has already ended. It returns the client, which shows credentials to the server.
func startLazily(t *testing.T, s *zktest.Server) process {
	t.Helper()
	settings := second.Defaults
	settings.TTL, settings.Lazy = timeout, true
	ended, end := context.WithCancel(t.Context())
	end()
	begun := time.Now()
	c := need.Get(zknode.Dial(ended, addr, zknode.WithSettings(settings), zknode.WithDialContext(s.DialContext),
		zknode.WithAuth("digest", []byte("service:right")), zknode.WithACL(zk.AuthACL(zk.PermAll))))(t)
	need.Equal(t, "time until Dial returned", time.Since(begun), 0)
	t.Cleanup(func() { c.Close() })
	return process{Client: c, lock: lockAt(t, c, path)}
}

// guarded gives the path an ACL. Only clients with the password have permissions.
func guarded(t *testing.T, s *zktest.Server) {
	t.Helper()
	conn := raw(t, s)
	need.OK(t, conn.AddAuth("digest", []byte("service:right")))
	create(t, conn, "/locks", "", 0, zk.AuthACL(zk.PermAll))
	create(t, conn, path, "", 0, zk.AuthACL(zk.PermAll))
}

// A server answers a request before the credentials with zk.ErrNoAuth, and that error would be final. Therefore the credentials come first.
func TestNothingIsAskedBeforeTheCredentialsWereShown(t *testing.T) {
	each(t, map[string]func(s *zktest.Server){
		"without trouble":       func(*zktest.Server) {},
		"they do not arrive":    func(s *zktest.Server) { meetOnce(s, is("setAuth", zktest.Request), zktest.Cut) },
		"their answer is lost":  func(s *zktest.Server) { meetOnce(s, is("setAuth", zktest.Reply), zktest.Cut) },
		"they are refused once": func(s *zktest.Server) { meetOnce(s, is("setAuth", zktest.Request), zktest.Error(zk.ErrAuthFailed)) },
	}, func(t *testing.T, s *zktest.Server, trouble func(*zktest.Server)) {
		guarded(t, s)
		trouble(s)
		p := startLazily(t, s)
		r := p.queue(within(t, time.Hour))
		r.await(t)
		need.OK(t, r.granted(t).Release())
		need.OK(t, p.Err())
	})
}

func TestLazyStartTellsThatCredentialsAreRefusedAndGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		guarded(t, s)
		meet(s, is("setAuth", zktest.Request), zktest.Error(zk.ErrAuthFailed))
		p := startLazily(t, s)
		r := p.queue(within(t, time.Minute))
		_, err := p.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire", err, zk.ErrAuthFailed)
		wantErr(t, "Err", p.Err(), zk.ErrAuthFailed)
		wantMention(t, p.Err(), "auth digest")
		r.await(t)
		err = r.failed(t)
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		wantErr(t, "Acquire", err, zk.ErrAuthFailed)
		s.Intercept(nil)
		need.OK(t, p.acquire(t).Release())
	})
}

// A TryAcquire of a lazy start waits until the process knows whether it can reach the server. If it cannot, TryAcquire then fails at once.
func TestTryOfALazyStartWaitsForTheFirstNews(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := startLazily(t, s)
		n := need.Get(p.lock.TryAcquire(t.Context()))(t)
		need.OK(t, n.Release())
	})
	bubble(t, func(t *testing.T, s *zktest.Server) {
		down(s)
		p := startLazily(t, s)
		_, err := p.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire", err, zk.ErrNoServer)
		wantMention(t, err, "refused")
	})
}

// Close ends a lazy start. At the end, the bubble fails the test if a goroutine is left.
func TestCloseEndsALazyStart(t *testing.T) {
	each(t, map[string]func(*zktest.Server){
		"no server":     down,
		"a mute server": (*zktest.Server).Freeze,
		"a server mute to credentials": func(s *zktest.Server) {
			meet(s, is("setAuth", zktest.Request), zktest.Drop)
		},
		"credentials that are refused": func(s *zktest.Server) {
			meet(s, is("setAuth", zktest.Request), zktest.Error(zk.ErrAuthFailed))
		},
	}, func(t *testing.T, s *zktest.Server, trouble func(*zktest.Server)) {
		trouble(s)
		p := startLazily(t, s)
		r := p.queue(t.Context())
		time.Sleep(700 * time.Millisecond)
		need.That(t, "granted or refused", r.waiting())
		begun := time.Now()
		need.OK(t, p.Close())
		wantWithin(t, 3*time.Second, "Close", begun)
		wantErr(t, "waiter", r.failed(t), second.ErrClosed)
		synctest.Wait()
		s.Unfreeze()
	})
}
