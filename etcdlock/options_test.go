package etcdlock

import (
	"log/slog"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/etcdversion"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

func TestBadOptionsAreNamed(t *testing.T) {
	t.Parallel()
	waittest.Refused(t, func(o tier.RegistryOption) error {
		_, err := New(t.Context(), new(clientv3.Client), o)
		return err
	}, map[string]tier.RegistryOption{
		"lease TTL 1.5s: want a multiple of 1s": tier.WithLeaseTTL(1500 * time.Millisecond),
		"want 1s to":                            tier.WithLeaseTTL(1 << 62),
		"not printable":                         tier.WithLabel("a\nb"),
		"linger -1ns":                           tier.WithLinger(-1),
		"option of type <nil>":                  nil,
		"option of type etcdlock.elsewhere":     elsewhere{},
	})
	need.That(t, "New without a client returns no error", need.ErrOf(New(t.Context(), nil)) != nil)
}

func TestPathsHaveComponents(t *testing.T) {
	t.Parallel()
	p := start(t)
	for path, ok := range map[string]bool{"x": true, "/a/b": true, "a/": false, "a//permits/3": false} {
		need.Equal(t, "there is a claim for "+path, need.ErrOf(p.Claim(path, second.Options{})) == nil, ok)
		need.Equal(t, path+" is valid", ValidatePath(path) == nil, ok)
	}
}

func TestTryWhereNobodyIsSaysSo(t *testing.T) {
	t.Parallel()
	p := prepare(t, []string{"127.0.0.1:1"}, "")
	defer p.end()
	p.open(t)
	need.WantMention(t, need.ErrOf(p.mutex(t).TryAcquire(soon(t))), "cannot be reached at 127.0.0.1:1")
}

// told starts a process, and returns it with its log. The function say changes the server's answers to the requests of a method.
func told(t *testing.T, method string, say func(reply any)) (*process, *logtest.Log) {
	t.Helper()
	p := prepare(t, []string{server(t).Addr()}, "")
	t.Cleanup(p.end)
	p.calls.on(method, func(one call) (bool, error) {
		err := one.send(one)
		say(one.reply)
		return true, err
	})
	log, logger := logtest.New(slog.LevelWarn)
	p.open(t, tier.WithLeaseTTL(6*time.Second), tier.WithLogger(logger))
	return p, log
}

func TestTTLIsTheOneThatWasGranted(t *testing.T) {
	t.Parallel()
	p, log := told(t, "LeaseGrant", func(reply any) { reply.(*etcdserverpb.LeaseGrantResponse).TTL = 7 })
	release(t, acquire(t, p.mutex(t)))
	need.Equal(t, "requests take, of a TTL of 7 s,", p.Patience(), 7*time.Second/6)
	p.Close() // waits until all lines are logged
	need.Equal(t, "lines in "+log.String(), len(log.Lines(slog.LevelWarn, "raised")), 1)
	p, _ = told(t, "LeaseGrant", func(reply any) { reply.(*etcdserverpb.LeaseGrantResponse).TTL = 0 })
	need.WantMention(t, need.ErrOf(p.mutex(t).Acquire(soon(t))), "a lease of 0s")
}

func TestOldServersAreWarnedAbout(t *testing.T) {
	t.Parallel()
	for number, old := range map[string]bool{"3.5.1": true, "3.6.5": false} {
		asked := make(chan struct{})
		p, log := told(t, "Status", func(reply any) {
			reply.(*etcdserverpb.StatusResponse).Version = number
			close(asked)
		})
		ended(t, "a look at the version", asked)
		p.Close()
		need.Equal(t, "warned of "+number, len(log.Lines(slog.LevelWarn, "version="+number)) == 1, old)
	}
}

// secured starts a server with authentication. The password is r.
func secured(t *testing.T) (addrs []string) {
	t.Helper()
	srv := childtest.Start(t, etcdserver.Start, etcdserver.Config{NoSync: true})
	p, ctx := prepare(t, []string{srv.Addr()}, ""), soon(t)
	defer p.client.Close()
	_, err := p.client.UserAdd(ctx, "root", "r")
	if err == nil {
		_, err = p.client.UserGrantRole(ctx, "root", "root")
	}
	if err == nil {
		_, err = p.client.AuthEnable(ctx)
	}
	need.OK(t, err)
	return []string{srv.Addr()}
}

func TestWhatIsNotPermittedFailsAtOnce(t *testing.T) {
	t.Parallel()
	p := prepare(t, secured(t), "")
	defer p.end()
	p.open(t)
	ctx := soon(t)
	need.That(t, "acquired without permission", need.ErrOf(p.mutex(t).Acquire(ctx)) != nil)
	need.WantErr(t, "not at once", ctx.Err(), nil)
}

// A stream of watches keeps the token with which it was opened. When the token expires, the stream stays open but accepts no new watch. The
// next watch then needs another stream.
func TestQueueIsWatchedAfterTheTokenOfOthersHasExpired(t *testing.T) {
	t.Parallel()
	addrs := secured(t)
	p := prepare(t, addrs, "r")
	defer p.end()
	if status, err := p.client.Status(soon(t), addrs[0]); err != nil {
		t.Fatal(err)
	} else if etcdversion.TooOld(status.Version) {
		t.Skip("3.4.23, which is too old for other reasons, hangs after the change of a password")
	}
	p.open(t) // the TTL is long, because the server takes time to check passwords
	acquire(t, p.mutex(t)).Contended().C()
	eventually(t, "a watch", func() bool { return p.calls.count("Range") > 0 })
	need.Get(p.client.UserChangePassword(soon(t), "root", "r"))(t) // makes all auth tokens expire
	acquire(t, p.at(t, lockPath(t)+"-2", second.Exclusive)).Contended().C()
	eventually(t, "a queue that is watched, and not looked at all the time", func() bool {
		before := p.calls.count("Range")
		time.Sleep(2 * time.Second)
		return p.calls.count("Range") == before
	})
}

// elsewhere is an option of another package.
type elsewhere struct{ tier.RegistryOption }
