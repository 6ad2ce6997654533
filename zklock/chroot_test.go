package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/zklock"
)

// What follows runs on a real server.

func TestRealChrootThatIsMissingComesWithTheFirstLockAndGoesWithTheLast(t *testing.T) {
	s := sharedServer(t)
	ctx := patient(t)
	conn := zkconn.Start(t, []string{s.Addr(), s.Addr()}, 4*time.Second, nil)
	p := connect(ctx, t, s.Addr()+"/app/team")
	if queue, err := p.lock.Contenders(ctx); err != nil || len(queue) > 0 {
		t.Errorf("Contenders: got %v, %v", queue, err)
	}
	if exists, _, err := conn.Exists("/app"); err != nil || exists {
		t.Errorf("before the first lock /app is there: %v, %v", exists, err)
	}
	for _, take := range []func(context.Context) (*zklock.Node, error){p.lock.TryAcquire, p.lock.Acquire} {
		n, err := take(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Release(); err != nil {
			t.Fatal(err)
		}
		for {
			exists, _, err := conn.Exists("/app")
			if err != nil {
				t.Fatal(err)
			}
			if !exists {
				break
			}
			if ctx.Err() != nil {
				t.Fatal("/app is left")
			}
		}
	}
}

func TestRealChrootThatIsThereStays(t *testing.T) {
	s := sharedServer(t)
	ctx := patient(t)
	conn := zkconn.Start(t, []string{s.Addr(), s.Addr()}, 4*time.Second, nil)
	put(t, conn, 0, "/kept")
	if err := releaseOnce(connect(ctx, t, s.Addr()+"/kept").lock, ctx); err != nil {
		t.Fatal(err)
	}
	for there := true; there && ctx.Err() == nil; { // until the server has looked at containers
		var err error
		if there, _, err = conn.Exists("/kept/locks"); err != nil {
			t.Fatal(err)
		}
	}
	if exists, _, err := conn.Exists("/kept"); err != nil || !exists {
		t.Errorf("/kept is there: %v, %v", exists, err)
	}
}

func TestRealChrootThatMayNotBeMadeIsNamedWithThePermission(t *testing.T) {
	t.Parallel()
	s := zkservertest.Start(t, zkserver.Config{NoSync: true})
	ctx := patient(t)
	conn := zkconn.Start(t, []string{s.Addr(), s.Addr()}, 4*time.Second, nil)
	put(t, conn, 0, "/theirs")
	for _, node := range []string{"/theirs", "/"} {
		if _, err := conn.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1); err != nil {
			t.Fatal(err)
		}
	}
	for chroot, want := range map[string]string{
		"/app/team":    "create parent /app: no CREATE permission on / ",
		"/theirs":      "create parent /theirs/locks: no CREATE permission on /theirs ",
		"/theirs/team": "create parent /theirs/team: no CREATE permission on /theirs ",
	} {
		p := connect(ctx, t, s.Addr()+chroot)
		_, err := p.lock.Acquire(ctx)
		wantErr(t, "Acquire", err, zk.ErrNoAuth)
		wantMention(t, err, want, "WithAuth")
		_, err = p.lock.TryAcquire(ctx)
		wantErr(t, "TryAcquire", err, zk.ErrNoAuth)
		wantMention(t, err, want, "WithAuth")
	}
}
