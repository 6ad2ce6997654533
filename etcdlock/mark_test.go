package etcdlock

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

func ask(t *testing.T, l lock) {
	t.Helper()
	need.OK(t, l.Revoke(soon(t)))
}

func share(t *testing.T, c *queue.Contender) {
	t.Helper()
	need.OK(t, c.Share(soon(t)))
}

// sharing returns a writer that has become a reader, and another reader right behind it.
func sharing(t *testing.T, p *process) (c *queue.Contender, reader *wait) {
	t.Helper()
	c = acquire(t, p.writer(t))
	reader = queues(t, start(t).reader(t))
	ended(t, "contended", c.Contended().C())
	return c, reader
}

// A mark is written once, even if it is requested three times or its answer is lost.
func TestMarksKeepThePlaceAndTheLease(t *testing.T) {
	p, q := start(t), start(t)
	c, reader := sharing(t, p)
	before, _ := stored(t, keyOf(c.Ref()))
	revision := writes(t)
	q.calls.drop("Txn")
	for range 3 {
		ask(t, q.mutex(t))
	}
	ended(t, "revoked", c.RevokeRequested())
	p.calls.drop("Txn")
	share(t, c)
	need.Equal(t, "writes to ask three times and to share", writes(t)-revision, 2)
	after, o := stored(t, keyOf(c.Ref()))
	need.That(t, fmt.Sprintf("key %v of %+v, want the place, the lease and the description kept", after, o),
		after.CreateRevision == c.Token() && after.Lease == before.Lease && o.Shared && o.Revoke && o.Host != "" && o.PID != 0)
	release(t, reader.Must(t), c)
}

// Share and Revoke write different fields of one key. Each of them keeps what the other has written.
func TestShareAndRevocationAtTheSameTime(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	for _, late := range []*process{p, q} {
		c, reader := sharing(t, p)
		share, revoke := func() { share(t, c) }, func() { ask(t, q.mutex(t)) }
		first, last := revoke, share
		if late == q {
			first, last = share, revoke
		}
		late.calls.once("Txn", 1, func(one call) error {
			first()
			return one.send(one)
		})
		last()
		_, o := stored(t, keyOf(c.Ref()))
		need.That(t, fmt.Sprintf("with the write of p last (%t): %+v", late == p, o), o.Shared && o.Revoke)
		ended(t, "revoked", c.RevokeRequested())
		release(t, reader.Must(t), c)
	}
}

func TestNeitherTheNextOneIsAskedNorAKeyMadeWhenTheHolderHasGone(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	for _, again := range []bool{false, true} {
		c := acquire(t, q.mutex(t))
		p.calls.once("Txn", 1, func(one call) error {
			release(t, c)
			if again { // the next key has the same name
				c = acquire(t, q.mutex(t))
			}
			return one.send(one)
		})
		ask(t, p.mutex(t))
		if again {
			_, o := stored(t, keyOf(c.Ref()))
			need.That(t, "the next one was asked", !o.Revoke)
			release(t, c)
		}
		need.Empty(t, "left", left(t))
	}
}

func TestShareThatFindsNoKeyFindsTheLoss(t *testing.T) {
	t.Parallel()
	p := start(t)
	c, reader := sharing(t, p)
	p.calls.silence() // the process gets no events any more
	does(t, clientv3.OpDelete(keyOf(c.Ref())))
	wantErr(t, c.Share(soon(t)), second.ErrLost)
	wantErr(t, c.Release(), second.ErrLost)
	release(t, reader.Must(t))
}

func TestShareOfWhatIsGivenUpMakesNoKey(t *testing.T) {
	t.Parallel()
	p := start(t)
	a := p.store.Do(soon(t), queue.Command{Op: queue.Share, Ref: queue.Ref{Path: lockPath(t), ID: "x", Token: 1}})
	need.That(t, "shared though it is given up", !a.View.Known)
	need.Empty(t, "keys", left(t))
}

func TestShareOfAKeyThatSomebodyElseHasWrittenIsRefused(t *testing.T) {
	t.Parallel()
	p := start(t)
	c, reader := sharing(t, p)
	does(t, clientv3.OpPut(keyOf(c.Ref()), "mine", clientv3.WithIgnoreLease()))
	need.WantMention(t, c.Share(soon(t)), "another program has written to")
	release(t, after(t, reader, c))
}

func TestShareThatIsExecutedLateChangesNothingMore(t *testing.T) {
	t.Parallel()
	p := start(t)
	c, reader := sharing(t, p)
	again := p.calls.replay(t, "Txn")
	share(t, c)
	release(t, c, reader.Must(t))
	next := acquire(t, p.writer(t))
	need.That(t, "the name is not used again", keyOf(next.Ref()) == keyOf(c.Ref()))
	again()
	_, o := stored(t, keyOf(next.Ref()))
	need.That(t, "the next writer is shared by the request of the last one", !o.Shared)
	release(t, next)
}

func TestOthersCannotBeAsked(t *testing.T) {
	t.Parallel()
	p, key := start(t), lockPath(t)+"/a\n\x1b[2Jb"
	does(t, clientv3.OpPut(key, ""))
	err := p.mutex(t).Revoke(soon(t))
	wantErr(t, err, errors.ErrUnsupported)
	need.That(t, fmt.Sprintf("a text of others as it came: %q", err), !strings.ContainsFunc(err.Error(), unicode.IsControl))
	need.Equal(t, "the version of their key", need.Get(outside(t).Get(soon(t), key))(t).Kvs[0].Version, 1)
}

// An Enter that is sent again reads less than the mirror does. Its answer must not replace what the mirror knows, such as a request for the
// lock.
func TestAnEnterThatIsSentAgainKnowsNoMoreThanAtFirst(t *testing.T) {
	t.Parallel()
	p := start(t)
	release(t, try(t, p.mutex(t))) // makes sure that there is a session
	enter := queue.Command{Op: queue.Enter, Session: p.store.names.session, Ref: queue.Ref{Path: lockPath(t), ID: "x"}}
	first := p.store.Do(soon(t), enter)
	does(t, clientv3.OpPut(lockPath(t)+"/other/key", "")) // increases the revision
	again := p.store.Do(soon(t), enter)
	need.That(t, fmt.Sprintf("entered as %+v, and then %+v", first, again),
		first.Outcome == queue.Done && again.Outcome == queue.Done && again.View.Token == first.View.Token)
	need.Equal(t, "the revision of the second view", again.View.At, first.View.At)
}
