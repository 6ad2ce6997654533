package zkinspect_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// takeOver deletes the node of the holder with the token.
func (s site) takeOver(t *testing.T, token int64) *inspect.Contender {
	t.Helper()
	broken, err := s.reader().Break(t.Context(), path, token)
	need.WantErr(t, "Break", err, nil)
	return broken
}

func (s site) wantQueue(t *testing.T, what string, want int) {
	t.Helper()
	synctest.Wait()
	need.Equal(t, what+": nodes in the queue", len(s.Children(path)), want)
}

func TestBreakGivesTheLockToTheNextAndTellsTheFormerHolder(t *testing.T) {
	for _, opts := range [][]zknode.Option{nil, {zknode.WithKazoo()}} {
		bubble(t, func(t *testing.T, s site) {
			hold, next := acquire(t, s.locks(t, opts...).Mutex(path)), make(chan *tier.Hold, 1)
			session := s.look(t).Contenders[0].Session
			mu := s.locks(t, opts...).Mutex(path)
			go func() { next <- acquire(t, mu) }()
			synctest.Wait()
			if broken := s.takeOver(t, hold.Token()); broken == nil || broken.Token != hold.Token() || broken.Session != session {
				t.Fatalf("got %+v, want token %d of %s", broken, hold.Token(), session)
			}
			synctest.Wait()
			need.That(t, "the next one has not been granted the lock at once", len(next) == 1)
			select {
			case <-hold.Lost():
			case <-time.After(5 * time.Second): // virtual; its end is watched a sixth of the timeout after the grant
				t.Error("the former holder was not told")
			}
			s.wantQueue(t, "afterwards", 1+len(opts))
		})
	}
}

// A token names one grant: neither that of a waiter, nor one from before, nor one of nobody deletes anything.
func TestBreakWithAnotherTokenDeletesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		need.Equal(t, "nobody there: broken", s.takeOver(t, 7), nil)
		mu := s.locks(t).Mutex(path)
		old := acquire(t, mu)
		old.Release()
		acquire(t, mu)
		s.queue(t, path)
		waiter := s.look(t).Contenders[1]
		for what, token := range map[string]int64{"a former grant": old.Token(), "a waiter": waiter.Token, "none": 0} {
			need.Equal(t, what+": broken", s.takeOver(t, token), nil)
		}
		s.wantQueue(t, "afterwards", 2)
	})
}

// One half of a pair is all that is left of it.
func TestBreakDeletesHalfAPair(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		hold := acquire(t, s.locks(t, zknode.WithKazoo()).Mutex(path))
		need.OK(t, s.conn.Delete(path+"/"+s.look(t).Contenders[0].Node, -1))
		s.wantQueue(t, "half of it deleted", 1)
		s.takeOver(t, hold.Token())
		s.wantQueue(t, "the rest broken", 0)
	})
}

// Between the look and the delete the head can go, and its path with it. Where names have nothing unique, another
// node then has the same one.
func TestBreakSparesAnotherNodeOfTheSameName(t *testing.T) {
	for _, moment := range []string{"setData", "delete"} {
		bubble(t, func(t *testing.T, s site) {
			node := s.put(t, path+"/lock-", "old", ephemeral, zk.PermAll)
			_, stat, _ := s.Get(node)
			replaced := false
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Op != moment || f.Dir != zktest.Request || replaced {
					return zktest.Pass
				}
				replaced = true
				return zktest.Delay(100 * time.Millisecond)
			})
			done := make(chan *inspect.Contender, 1)
			go func() { done <- s.takeOver(t, stat.Czxid) }()
			synctest.Wait()
			need.That(t, fmt.Sprint("no ", moment), replaced)
			s.conn.Delete(node, -1)
			s.conn.Delete(path, -1)
			need.Equal(t, "the name, which is used again", s.put(t, path+"/lock-", "new", ephemeral, zk.PermAll), node)
			need.Equal(t, fmt.Sprint(moment)+": broken", <-done, nil)
			s.wantQueue(t, moment+": another node of the same name", 1)
		})
	}
}

func TestBreakWhoseAnswerIsLostLooksAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		hold := acquire(t, s.locks(t).Mutex(path))
		lost := false
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "delete" && f.Dir == zktest.Reply && !lost {
				lost = true
				return zktest.Cut
			}
			return zktest.Pass
		})
		if broken := s.takeOver(t, hold.Token()); broken == nil || broken.Token != hold.Token() || !lost {
			t.Errorf("got %+v, want token %d; an answer was lost: %t", broken, hold.Token(), lost)
		}
	})
}

// Each step can last: its answer comes late, or it is refused and tried again. What has not been asked for by then never is.
func TestBreakEndsWithItsContext(t *testing.T) {
	for what, fate := range map[string]zktest.Action{"late": zktest.Delay(2 * time.Second), "refused": zktest.Throttled} {
		for _, op := range []string{"sync", "getChildren2", "getData", "delete"} {
			bubble(t, func(t *testing.T, s site) {
				hold := acquire(t, s.locks(t).Mutex(path))
				s.Intercept(func(f *zktest.Frame) zktest.Action {
					if f.Op != op || f.Dir != zktest.Request || f.Path == "/" { // that of a heartbeat
						return zktest.Pass
					}
					return fate
				})
				ctx := need.Within(t, time.Second)
				begun := time.Now()
				broken, err := s.reader().Break(ctx, path, hold.Token())
				need.Equal(t, "broken", broken, nil)
				need.WantErr(t, fmt.Sprintf("%s %s", what, op), err, context.DeadlineExceeded)
				need.Equal(t, fmt.Sprintf("%s %s: took", what, op), time.Since(begun), time.Second)
				s.Intercept(nil)
				if time.Sleep(5 * time.Second); op != "delete" {
					s.wantQueue(t, what+" "+op, 1)
				}
			})
		}
	}
}

func TestBreakNamesThePermissionThatIsMissing(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		_, stat, _ := s.Get(s.put(t, path+"/_c_"+uuid+"-lock-", "", ephemeral, zk.PermAll))
		need.Get(s.conn.SetACL(path, zk.WorldACL(zk.PermRead|zk.PermCreate), -1))(t)
		_, err := s.reader().Break(t.Context(), path, stat.Czxid)
		need.WantErr(t, "Break", err, zk.ErrNoAuth)
		need.WantMention(t, err, "DELETE permission on "+path)
	})
}

// Readers have the lock together, so each of them can be broken.
func TestBreakTakesTheReaderWithTheToken(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		acquire(t, s.locks(t).RWMutex(path).Reader())
		second := acquire(t, s.locks(t).RWMutex(path).Reader())
		s.put(t, path+"/_c_"+uuid+"-__WRIT__", "", ephemeral, zk.PermAll)
		late := s.put(t, path+"/_c_"+uuid+"-__READ__", "", ephemeral, zk.PermAll)
		before := s.look(t).Contenders
		broken := s.takeOver(t, second.Token())
		need.That(t, fmt.Sprintf("%+v, want %s", broken, before[1].Node), broken != nil && broken.Node == before[1].Node)
		_, stat, _ := s.Get(late)
		need.Equal(t, "one that waits behind a writer: broken", s.takeOver(t, stat.Czxid), nil)
		s.wantQueue(t, "afterwards", 3)
	})
}
