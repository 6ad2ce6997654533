package zkinspect_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/zkinspect"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// A watcher remembers what it was told.
type watcher struct {
	mu     sync.Mutex
	events []string // since the last take
	last   inspect.Sight
	end    chan error
}

func (s site) follow(t *testing.T, ctx context.Context, path string) *watcher {
	t.Helper()
	w := &watcher{end: make(chan error, 1)}
	f := &inspect.Follower{Reader: s.reader(), Path: path, Every: time.Second, Limit: 100}
	go func() { w.end <- f.Follow(ctx, w.see) }()
	return w
}

func (w *watcher) see(s inspect.Sight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = s
	for _, e := range s.Events {
		text := e.What + " " + e.Path
		if e.Contender != nil {
			text += fmt.Sprint(" #", e.Contender.Sequence)
		}
		if e.Semaphore != nil {
			text += fmt.Sprintf(" %s; %d wait", e.Semaphore.Sum(func(c *inspect.Contender) string { return c.Label + c.Content }), e.Waiting)
		}
		if e.Unseen > 0 {
			text += fmt.Sprintf(" (%d unseen)", e.Unseen)
		}
		w.events = append(w.events, strings.TrimSpace(text))
	}
}

// take waits for the next look and returns what has happened since the last take.
func (w *watcher) take() string {
	time.Sleep(1100 * time.Millisecond)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.Join(w.events, ", ")
	w.events = nil
	return text
}

func (w *watcher) want(t *testing.T, what, want string) {
	t.Helper()
	if got := w.take(); got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestFollowTellsOfEachChangeOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		ctx, cancel := context.WithCancel(t.Context())
		w := s.follow(t, ctx, path)
		w.want(t, "nobody", "")
		join := func() string { return s.put(t, path+"/"+hex+"__lock__", "", ephemeral, zk.PermAll) }
		leave := func(node string) {
			if err := s.conn.Delete(node, -1); err != nil {
				t.Fatal(err)
			}
		}
		a, b, c := join(), join(), join()
		w.want(t, "three come", "held /locks/x #0, queued /locks/x #1, queued /locks/x #2")
		w.want(t, "nothing happens", "")
		leave(b)
		w.want(t, "a waiter goes", "left /locks/x #1")
		leave(a)
		w.want(t, "a hand-over", "held /locks/x #2")
		d := join()
		leave(c)
		leave(d)
		leave(join())
		e, f, g := join(), join(), join()
		w.want(t, "faster than the looks", "held /locks/x #5 (2 unseen), queued /locks/x #6, queued /locks/x #7")
		leave(e)
		leave(f)
		w.want(t, "two turns", "held /locks/x #7")
		leave(g)
		w.want(t, "nobody again", "free /locks/x")
		cancel()
		if err := <-w.end; err != nil {
			t.Errorf("ends with %v", err)
		}
	})
}

// Where a path is made anew, names and numbers recur.
func TestFollowTellsNodesOfTheSameNameApart(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		ctx, cancel := context.WithCancel(t.Context())
		first := s.put(t, path+"/lock-", "", ephemeral, zk.PermAll)
		w := s.follow(t, ctx, path)
		w.want(t, "at first", "held /locks/x #0")
		for _, gone := range []string{first, path} {
			if err := s.conn.Delete(gone, -1); err != nil {
				t.Fatal(err)
			}
		}
		if second := s.put(t, path+"/lock-", "", ephemeral, zk.PermAll); second != first {
			t.Fatalf("got %s, want %s again", second, first)
		}
		s.conn.Delete(s.put(t, path+"/lock-", "", ephemeral, zk.PermAll), -1)
		w.want(t, "anew", "held /locks/x #0 (1 unseen)")
		cancel()
		<-w.end
	})
}

// One lock that may no longer be looked at does not hide the others.
func TestFollowGoesOnWithoutALockThatMayNotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		ctx, cancel := context.WithCancel(t.Context())
		s.queue(t, "/app/a")
		s.queue(t, "/app/b")
		w := s.follow(t, ctx, "/app")
		w.want(t, "both", "held /app/a #0, held /app/b #0")
		if _, err := s.conn.SetACL("/app/a", zk.WorldACL(zk.PermAll&^zk.PermRead), -1); err != nil {
			t.Fatal(err)
		}
		s.put(t, "/app/b/"+hex+"__lock__", "", ephemeral, zk.PermAll)
		w.want(t, "one", "queued /app/b #1")
		cancel()
		<-w.end
	})
}

// A connection that goes and comes back is told of once each; what happened meanwhile is told then.
func TestFollowOutlivesConnectionAndSession(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		ctx, cancel := context.WithCancel(t.Context())
		a := s.put(t, path+"/"+hex+"__lock__", "", ephemeral, zk.PermAll)
		w := s.follow(t, ctx, path)
		w.want(t, "at first", "held /locks/x #0")
		s.Freeze()
		time.Sleep(time.Minute) // every session ends with its server's silence
		if got := w.take(); got != "disconnected" {
			t.Errorf("without a server: got %q", got)
		}
		if w.last.Trouble == "" || len(w.last.Queues) != 1 {
			t.Errorf("got %+v, want what was seen last, and the trouble", w.last)
		}
		s.Unfreeze()
		time.Sleep(time.Minute)
		synctest.Wait()
		s.conn.Delete(a, -1)
		b := s.put(t, path+"/"+hex+"__lock__", "", ephemeral, zk.PermAll)
		if got := w.take(); !strings.HasPrefix(got, "connected") || !strings.HasSuffix(got, fmt.Sprintf("held /locks/x #%s", strings.TrimLeft(b[len(b)-10:], "0"))) {
			t.Errorf("with the server back: got %q", got)
		}
		if w.last.Trouble != "" {
			t.Errorf("still in trouble: %s", w.last.Trouble)
		}
		cancel()
		<-w.end
	})
}

func TestFollowEndsWhereItMayNotLook(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		s.put(t, path, "", 0, zk.PermAll&^zk.PermRead)
		w := s.follow(t, t.Context(), path)
		if err := <-w.end; !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("got %v", err)
		}
	})
}

// What it costs is what its documentation says: nodes that are known are not read again.
func TestALookCostsOneReadForEachLock(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		for i := range 10 {
			s.queue(t, fmt.Sprintf("/app/%d", i))
			s.queue(t, fmt.Sprintf("/app/%d", i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		w := s.follow(t, ctx, "/app")
		w.take()
		var mu sync.Mutex
		reads := make(map[string]int)
		session := int64(0) // the operator's
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case f.Dir != zktest.Request:
			case f.Path == "/it/is/me":
				session = f.Session
			case f.Session == session:
				reads[f.Op]++
			}
			return zktest.Pass
		})
		zkinspect.Reader{Client: s.client}.Look(t.Context(), "/it/is/me")
		w.take()
		mu.Lock()
		if got := reads["getChildren2"] + reads["getChildren"]; got != 11 || reads["getData"] != 0 {
			t.Errorf("got %v, want 11 reads of children", reads)
		}
		mu.Unlock()
		cancel()
		<-w.end
	})
}

// A semaphore is none of the locks: it has permits, which several have, and those who wait for some.
func TestFollowTellsOfPermits(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		ctx, cancel := context.WithCancel(t.Context())
		w := s.follow(t, ctx, "/")
		w.want(t, "nothing is there", "")
		permits, err := s.locks(t, zklock.WithLabel("billing")).Semaphore("/pool/db", 3).Acquire(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // from search to search
		w.want(t, "two are taken", "permits /pool/db 2 of 3 permits in use: 2 by billing; 0 wait")
		waiting := make(chan *tier.Permits, 1)
		go func() {
			permits, _ := s.locks(t, zklock.WithLabel("batch")).Semaphore("/pool/db", 3).Acquire(t.Context(), 3)
			waiting <- permits
		}()
		w.want(t, "somebody wants three", "permits /pool/db 2 of 3 permits in use: 2 by billing; 1 wait")
		w.want(t, "nothing happens", "")
		w.mu.Lock()
		if q := w.last.Queues; len(q) != 1 || q[0].Path != "/pool/db" || len(q[0].Contenders) != 0 || q[0].Semaphore.Queue[0].Label != "batch" || q[0].Semaphore.Queue[0].State != inspect.Next {
			t.Errorf("got %+v", q)
		}
		w.mu.Unlock()
		permits.Release()
		w.want(t, "they are its", "permits /pool/db 3 of 3 permits in use: 3 by batch; 0 wait")
		(<-waiting).Release()
		w.want(t, "all are free", "permits /pool/db 0 of 3 permits in use; 0 wait")
		cancel()
		<-w.end
	})
}
