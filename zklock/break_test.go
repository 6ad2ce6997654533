package zklock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestBreakGivesTheLockToTheNextAndTellsTheFormerHolder(t *testing.T) {
	for name, opts := range map[string][]zklock.Option{"single": nil, "pair": {zklock.WithKazoo()}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				holder, waiter, operator := start(t, s, opts...), start(t, s, opts...), start(t, s)
				n := holder.acquire(t)
				r := waiter.queue(t.Context())
				broken, err := operator.lock.Break(t.Context(), n.Token())
				if err != nil || broken.Token != n.Token() || broken.Session != holder.session {
					t.Fatalf("got %+v, %v", broken, err)
				}
				next := r.granted(t)
				awaitWatch()
				wantErr(t, "the former holder", n.Err(), zklock.ErrLost)
				n.Release()
				if left := s.Children(path); len(left) != 1+len(opts) {
					t.Errorf("left: %q", left)
				}
				next.Release()
			})
		})
	}
}

// A token names one grant: neither that of a waiter, nor one from before, nor one of nobody deletes anything.
func TestBreakWithAnotherTokenDeletesNothingAndSaysWhoHolds(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		holder, waiter, operator := start(t, s, zklock.WithLabel("billing")), start(t, s), start(t, s)
		_, err := operator.lock.Break(t.Context(), 7)
		wantErr(t, "nobody there", err, zklock.ErrNotHolder)
		old := holder.acquire(t)
		old.Release()
		n := holder.acquire(t)
		r := waiter.queue(t.Context())
		queue, err := operator.lock.Contenders(t.Context())
		if err != nil || len(queue) != 2 {
			t.Fatal(queue, err)
		}
		for what, token := range map[string]int64{"a former grant": old.Token(), "a waiter": queue[1].Token, "none": 0} {
			_, err := operator.lock.Break(t.Context(), token)
			wantErr(t, what, err, zklock.ErrNotHolder)
			if !strings.Contains(err.Error(), `"billing"`) || !strings.Contains(err.Error(), queue[0].Node) {
				t.Errorf("%s: does not say who holds: %v", what, err)
			}
		}
		if left := s.Children(path); len(left) != 2 {
			t.Errorf("left: %q", left)
		}
		n.Release()
		r.granted(t).Release()
	})
}

// One half of a pair is all that is left of it.
func TestBreakDeletesHalfAPair(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, holder, operator := raw(t, s), start(t, s, zklock.WithKazoo()), start(t, s)
		n := holder.acquire(t)
		if err := conn.Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		if _, err := operator.lock.Break(t.Context(), n.Token()); err != nil {
			t.Fatal(err)
		}
		wantEmpty(t, s)
		n.Release()
	})
}

// Between the look and the delete the head can go, and its path with it. Where names have nothing unique, another
// node then has the same one.
func TestBreakSparesAnotherNodeOfTheSameName(t *testing.T) {
	for _, moment := range []zktest.Op{zktest.OpSetData, zktest.OpDelete} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			conn, operator := raw(t, s), start(t, s)
			put(t, conn, 0, "/locks", path)
			create := func(data string) string {
				node, err := conn.Create(path+"/lock-", []byte(data), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
				if err != nil {
					t.Error(err)
				}
				return node
			}
			node := create("old")
			_, stat, _ := conn.Get(node)
			replaced := false
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Op != moment || f.Stage != zktest.Request || replaced {
					return zktest.Pass
				}
				replaced = true
				return zktest.Delay(100 * time.Millisecond)
			})
			done := make(chan error, 1)
			go func() {
				_, err := operator.lock.Break(t.Context(), stat.Czxid)
				done <- err
			}()
			synctest.Wait()
			if !replaced {
				t.Fatalf("no %v", moment)
			}
			conn.Delete(node, -1)
			conn.Delete(path, -1)
			put(t, conn, 0, path)
			if again := create("new"); again != node {
				t.Fatalf("got %s, want the name %s again", again, node)
			}
			wantErr(t, "break", <-done, zklock.ErrNotHolder)
			if left := s.Children(path); len(left) != 1 {
				t.Errorf("%v: another node of the same name was deleted", moment)
			}
		})
	}
}

func TestBreakWhoseAnswerIsLostLooksAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		holder, operator := start(t, s), start(t, s)
		n := holder.acquire(t)
		lost := false
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpDelete && f.Stage == zktest.Reply && !lost {
				lost = true
				return zktest.Cut
			}
			return zktest.Pass
		})
		broken, err := operator.lock.Break(t.Context(), n.Token())
		if err != nil || broken.Token != n.Token() || !lost {
			t.Errorf("got %+v, %v", broken, err)
		}
		n.Release()
	})
}

func TestBreakEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		holder, operator := start(t, s), start(t, s)
		n := holder.acquire(t)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpDelete && f.Stage == zktest.Request {
				return zktest.Drop
			}
			return zktest.Pass
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		_, err := operator.lock.Break(ctx, n.Token())
		wantErr(t, "break", err, context.DeadlineExceeded)
		if took := time.Since(begun); took != time.Second {
			t.Errorf("took %v", took)
		}
		s.Intercept(nil)
	})
}

func TestBreakNamesThePermissionThatIsMissing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, operator := raw(t, s), start(t, s)
		put(t, conn, 0, "/locks")
		if _, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermRead|zk.PermCreate)); err != nil {
			t.Fatal(err)
		}
		node, err := conn.CreateProtectedEphemeralSequential(path+"/lock-", nil, zk.WorldACL(zk.PermAll))
		if err != nil {
			t.Fatal(err)
		}
		_, stat, _ := conn.Get(node)
		_, err = operator.lock.Break(t.Context(), stat.Czxid)
		wantErr(t, "break", err, zk.ErrNoAuth)
		if err != nil && !strings.Contains(err.Error(), "DELETE permission on "+path) {
			t.Errorf("got %v", err)
		}
	})
}

// Readers have the lock together, so each of them can be broken.
func TestBreakTakesTheReaderWithTheToken(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		first, second := start(t, s).reading().acquire(t), start(t, s).reading().acquire(t)
		start(t, s).writing().queue(t.Context())
		late := start(t, s).reading().queue(t.Context())
		p := start(t, s)
		broken, err := p.lock.Break(t.Context(), second.Token())
		if err != nil || path+"/"+broken.Node != second.Path() || s.Exists(second.Path()) || !s.Exists(first.Path()) {
			t.Errorf("got %+v, %v; want %s", broken, err, second.Path())
		}
		queue, err := p.lock.Contenders(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.lock.Break(t.Context(), queue[2].Token)
		if wantErr(t, "Break of one that waits", err, zklock.ErrNotHolder); !late.waiting() {
			t.Error("granted behind a writer")
		}
	})
}
