package etcdlock

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/tierlock/tierlock/etcdlock/internal/version"
	"github.com/tierlock/tierlock/internal/etcdserver"
	"github.com/tierlock/tierlock/internal/etcdserver/etcdservertest"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A stream of watches keeps the token that it began with. When that is not valid any more,
// the stream lives on, but takes no new watch.
func TestQueueIsWatchedAfterTheTokenOfOthersHasExpired(t *testing.T) {
	t.Parallel()
	srv := etcdservertest.Start(t, etcdserver.Config{NoSync: true})
	root := dial(t, clientv3.Config{Endpoints: []string{srv.Addr()}})
	ctx := soon(t)
	if status, err := root.Status(ctx, srv.Addr()); err != nil {
		t.Fatal(err)
	} else if version.TooOld(status.Version) {
		t.Skip("3.4.23, which is too old for other reasons, hangs after the change of a password")
	}
	for _, err := range []error{
		errorOf(root.UserAdd(ctx, "root", "r")), errorOf(root.UserGrantRole(ctx, "root", "root")),
		errorOf(root.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	calls := &calls{counts: make(map[string]int)}
	client := dial(t, clientv3.Config{Endpoints: []string{srv.Addr()}, Username: "root", Password: "r", DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(calls.unary),
	}})
	o, _, _ := newOptions(nil) // a TTL that gives the server time to look at passwords
	s := open(client, o)
	defer s.tier.Close()
	follow := func(path string) *queue.Contender {
		l, err := s.tier.Claim(path, second.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := mustAcquire(t, lock{l, path})
		c.Contested().C()
		return c
	}
	follow("/locks/a")
	eventually(t, "a watch", func() bool { return calls.count("Range") > 0 })
	if _, err := client.UserChangePassword(ctx, "root", "r"); err != nil { // which ends the tokens
		t.Fatal(err)
	}
	follow("/locks/b")
	eventually(t, "a queue that is watched, and not looked at all the time", func() bool {
		before := calls.count("Range")
		time.Sleep(2 * time.Second)
		return calls.count("Range") == before
	})
}

// Servers before 3.5 say of an expired token that the watch is not permitted.
func TestRefusalOfAWatchIsNoneOfTheQueue(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	refused := q.calls.refuseWatch("etcdserver: permission denied")
	holder := mustAcquire(t, p.at(t, lockPath(t)))
	w := begin(t, q.at(t, lockPath(t)).Acquire)
	ended(t, "a watch", refused, 10*time.Second)
	w.pending(t)
	mustRelease(t, holder)
	mustRelease(t, w.must(t))
}
