package zkinspect_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/zkinspect"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A watcher records the calls that it gets.
type watcher struct {
	mu     sync.Mutex
	events []string // the events since the last take
	last   inspect.Sight
}

func (s site) follower(path string) *inspect.Follower {
	return &inspect.Follower{Reader: s.reader(), Path: path, Every: time.Second, Limit: 100}
}

// follow watches a path until the end of the test.
func (s site) follow(t *testing.T, path string) *watcher {
	t.Helper()
	w, end := &watcher{}, make(chan error, 1)
	go func() { end <- s.follower(path).Follow(t.Context(), w.see) }()
	t.Cleanup(func() { need.WantErr(t, "the end", <-end, nil) })
	return w
}

// leave deletes a node, as its owner would do.
func (s site) leave(t *testing.T, node string) {
	t.Helper()
	need.OK(t, s.conn.Delete(node, -1))
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
		if e.Unseen > 0 {
			text += fmt.Sprintf(" (%d unseen)", e.Unseen)
		}
		w.events = append(w.events, strings.TrimSpace(text))
	}
}

// take waits for the next poll and returns the events since the last take.
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
	need.Equal(t, what, w.take(), want)
}

func TestFollowTellsOfEachChangeOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		w := s.follow(t, path)
		w.want(t, "nobody", "")
		join := func() string { return s.put(t, path+"/"+hex+"__lock__", "", ephemeral, zk.PermAll) }
		a, b, c := join(), join(), join()
		w.want(t, "three come", "held /locks/x #0, queued /locks/x #1, queued /locks/x #2")
		w.want(t, "nothing happens", "")
		s.leave(t, b)
		w.want(t, "a waiter goes", "left /locks/x #1")
		s.leave(t, a)
		w.want(t, "a hand-over", "held /locks/x #2")
		d := join()
		s.leave(t, c)
		s.leave(t, d)
		s.leave(t, join())
		e, f, g := join(), join(), join()
		w.want(t, "faster than the looks", "held /locks/x #5 (2 unseen), queued /locks/x #6, queued /locks/x #7")
		s.leave(t, e)
		s.leave(t, f)
		w.want(t, "two turns", "held /locks/x #7")
		s.leave(t, g)
		w.want(t, "nobody again", "free /locks/x")
	})
}

// When a path is deleted and created again, names and numbers may be used a second time. Follow still reports two different nodes.
func TestFollowTellsNodesOfTheSameNameApart(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		first := s.put(t, path+"/lock-", "", ephemeral, zk.PermAll)
		w := s.follow(t, path)
		w.want(t, "at first", "held /locks/x #0")
		for _, gone := range []string{first, path} {
			need.OK(t, s.conn.Delete(gone, -1))
		}
		need.Equal(t, "the name, which is used again", s.put(t, path+"/lock-", "", ephemeral, zk.PermAll), first)
		s.conn.Delete(s.put(t, path+"/lock-", "", ephemeral, zk.PermAll), -1)
		w.want(t, "anew", "held /locks/x #0 (1 unseen)")
	})
}

// If the operator may no longer read one lock, follow still shows the others.
func TestFollowGoesOnWithoutALockThatMayNotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		s.queue(t, "/app/a")
		s.queue(t, "/app/b")
		w := s.follow(t, "/app")
		w.want(t, "both", "held /app/a #0, held /app/b #0")
		need.Get(s.conn.SetACL("/app/a", zk.WorldACL(zk.PermAll&^zk.PermRead), -1))(t)
		s.put(t, "/app/b/"+hex+"__lock__", "", ephemeral, zk.PermAll)
		w.want(t, "one", "queued /app/b #1")
	})
}

// Follow reports the loss and the return of the connection once each. After the return, it reports the changes in between.
func TestFollowOutlivesConnectionAndSession(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		a := s.put(t, path+"/"+hex+"__lock__", "", ephemeral, zk.PermAll)
		w := s.follow(t, path)
		w.want(t, "at first", "held /locks/x #0")
		s.Freeze()
		time.Sleep(time.Minute) // all sessions end during this time
		need.Equal(t, "without a server", w.take(), "disconnected")
		need.That(t, "no trouble is seen", w.last.Trouble != "")
		need.Equal(t, "queues, as seen last", len(w.last.Queues), 1)
		s.Unfreeze()
		time.Sleep(time.Minute)
		synctest.Wait()
		s.conn.Delete(a, -1)
		b := s.put(t, path+"/"+hex+"__lock__", "", ephemeral, zk.PermAll)
		held := "held /locks/x #" + strings.TrimLeft(b[len(b)-10:], "0")
		got := w.take()
		need.That(t, fmt.Sprintf("with the server back: got %q", got), strings.HasPrefix(got, "connected") && strings.HasSuffix(got, held))
		need.Equal(t, "still in trouble", w.last.Trouble, "")
	})
}

func TestFollowEndsWhereItMayNotLook(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		s.put(t, path, "", 0, zk.PermAll&^zk.PermRead)
		need.WantErr(t, "Follow", s.follower(path).Follow(t.Context(), new(watcher).see), zk.ErrNoAuth)
	})
}

// A poll costs as much as the documentation says: it does not read known nodes again.
func TestALookCostsOneReadForEachLock(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		for i := range 10 {
			s.queue(t, fmt.Sprintf("/app/%d", i))
			s.queue(t, fmt.Sprintf("/app/%d", i))
		}
		w := s.follow(t, "/app")
		w.take()
		var mu sync.Mutex
		reads := make(map[string]int)
		session := int64(0) // the session of the operator
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
		need.Equal(t, "reads of children", reads["getChildren2"]+reads["getChildren"], 11)
		need.Equal(t, "reads of data", reads["getData"], 0)
		mu.Unlock()
	})
}
