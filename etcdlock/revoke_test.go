package etcdlock

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

func mustRevoke(t *testing.T, l lock) {
	t.Helper()
	if err := l.Revoke(soon(t)); err != nil {
		t.Fatal(err)
	}
}

func asked(c *queue.Contender) bool {
	select {
	case <-c.Revoked():
		return true
	default:
		return false
	}
}

func TestHolderIsAskedForTheLockByAnotherProcess(t *testing.T) {
	for _, mode := range modes {
		p, q := start(t), start(t)
		c := mustAcquire(t, p.in(t, lockPath(t), mode))
		revoked := c.Revoked()
		waiting := queueAt(t, q.in(t, lockPath(t), second.Writing))
		before, _ := stored(t, keyOf(c.Ref()))
		revision := writes(t)
		for range 3 {
			mustRevoke(t, q.in(t, lockPath(t), second.Writing))
		}
		if n := writes(t) - revision; n != 1 {
			t.Errorf("asked three times with %d writes, want one", n)
		}
		ended(t, "revoked", revoked, ttl/3)
		after, o := stored(t, keyOf(c.Ref()))
		if after.Lease != before.Lease || after.CreateRevision != before.CreateRevision || o.PID == 0 || o.Shared {
			t.Errorf("key %v of %+v", after, o)
		}
		queue, err := q.at(t, lockPath(t)).Contenders(soon(t))
		if err != nil || len(queue) != 2 || !queue[0].Asked || queue[1].Asked {
			t.Errorf("contenders %+v, %v", queue, err)
		}
		if err := c.Err(); err != nil {
			t.Errorf("nobody is made to: %v", err)
		}
		mustRelease(t, c)
		next := waiting.must(t)
		if asked(next) {
			t.Error("the next one is asked as well")
		}
		mustRelease(t, next)
	}
}

func TestNamesOfForeignKeysAreCleanInErrors(t *testing.T) {
	t.Parallel()
	if _, err := outside(t).Put(soon(t), lockPath(t)+"/a\n\x1b[2Jb", ""); err != nil {
		t.Fatal(err)
	}
	err := start(t).at(t, lockPath(t)).Revoke(soon(t))
	wantErr(t, err, errors.ErrUnsupported)
	if strings.ContainsFunc(err.Error(), unicode.IsControl) {
		t.Errorf("a text of others as it came: %q", err)
	}
}

func TestOtherLibrariesCannotBeAsked(t *testing.T) {
	session, err := concurrency.NewSession(outside(t), concurrency.WithTTL(5))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	theirs := concurrency.NewMutex(session, lockPath(t))
	if err := theirs.Lock(soon(t)); err != nil {
		t.Fatal(err)
	}
	p := start(t)
	w := queueAt(t, p.at(t, lockPath(t)))
	before := writes(t)
	wantErr(t, p.at(t, lockPath(t)).Revoke(soon(t)), errors.ErrUnsupported)
	if writes(t) != before {
		t.Error("written to their key")
	}
	if err := theirs.Unlock(soon(t)); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, w.must(t))
}

func TestLostReplyOfARevocationIsFoundOut(t *testing.T) {
	c := mustAcquire(t, start(t).at(t, lockPath(t)))
	p := start(t)
	before := writes(t)
	p.calls.dropReply("Txn", 1)
	mustRevoke(t, p.at(t, lockPath(t)))
	if n := writes(t) - before; n != 1 {
		t.Errorf("%d writes", n)
	}
	ended(t, "revoked", c.Revoked(), ttl/3)
	mustRelease(t, c)
}

func TestNeitherTheNextOneIsAskedNorAKeyMadeWhenTheHolderHasGone(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		q := start(t)
		l := q.at(t, lockPath(t))
		c := mustAcquire(t, l)
		p := start(t)
		p.calls.once("Txn", 1, func(ctx context.Context, send func(context.Context) error) error {
			mustRelease(t, c)
			if again { // under the same name
				c = mustAcquire(t, l)
			}
			return send(ctx)
		})
		mustRevoke(t, p.at(t, lockPath(t)))
		if again {
			if _, o := stored(t, keyOf(c.Ref())); o.Revoke {
				t.Error("the next one was asked")
			}
			mustRelease(t, c)
		}
		if keys := left(t, lockPath(t)); len(keys) != 0 {
			t.Errorf("left: %v", keys)
		}
	}
}

// Each keeps what the other has written.
func TestShareAndRevocationAtTheSameTime(t *testing.T) {
	t.Parallel()
	for _, late := range []string{"share", "revocation"} {
		p, q := start(t), start(t)
		c := mustAcquire(t, p.in(t, lockPath(t), second.Writing))
		reader := queueAt(t, start(t).in(t, lockPath(t), second.Reading))
		ended(t, "contested", c.Contested().C(), ttl/3)
		share := func() {
			if err := c.Share(soon(t)); err != nil {
				t.Error(err)
			}
		}
		revoke := func() { mustRevoke(t, q.at(t, lockPath(t))) }
		if late == "share" {
			p.calls.once("Txn", 1, func(ctx context.Context, send func(context.Context) error) error {
				revoke()
				return send(ctx)
			})
			share()
		} else {
			q.calls.once("Txn", 1, func(ctx context.Context, send func(context.Context) error) error {
				share()
				return send(ctx)
			})
			revoke()
		}
		if _, o := stored(t, keyOf(c.Ref())); !o.Shared || !o.Revoke {
			t.Errorf("with the %s last: %+v", late, o)
		}
		ended(t, "revoked", c.Revoked(), ttl/3)
		mustRelease(t, reader.must(t))
		mustRelease(t, c)
	}
}

func TestMarkKeepsWhatOthersSay(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("<", 256)
	value := marked(`{"v":1,"pid":7,"label":"`+label+`","later":{"a":[1]}}`, "revoke", "true")
	var fields map[string]any
	if err := json.Unmarshal([]byte(value), &fields); err != nil {
		t.Fatal(err)
	}
	if fields["revoke"] != true || fields["pid"] != 7.0 || fields["later"] == nil || !strings.Contains(value, label) {
		t.Errorf("marked: %s", value)
	}
}
