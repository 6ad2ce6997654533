package zkinspect_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/tier"
)

// The method locks returns the registry of a new process.
func (s site) locks(t *testing.T, opts ...zknode.Option) *tier.Registry {
	t.Helper()
	locks := tier.New(zknode.Tier(dial(t, s.Server, opts...)))
	t.Cleanup(func() { locks.Close() })
	return locks
}

// acquire acquires a free lock.
func acquire(t *testing.T, mu *tier.Mutex) *tier.Hold {
	t.Helper()
	return need.Get(mu.Acquire(t.Context()))(t)
}

// A process counts as one holder, for any number of its goroutines that read.
func TestReadersAtTheHeadAllHold(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		for i := range 3 {
			rw := s.locks(t, zknode.WithLabel(fmt.Sprint("reader ", i))).RWMutex(path)
			for range 10 {
				acquire(t, rw.Reader())
			}
		}
		s.put(t, path+"/_c_"+uuid+"-__READ__", "", ephemeral, zk.PermAll)
		writer, late := s.locks(t).RWMutex(path), s.locks(t).RWMutex(path)
		go writer.Writer().Acquire(t.Context())
		synctest.Wait()
		go late.Reader().Acquire(t.Context())
		synctest.Wait()

		q := s.look(t)
		var got []string
		for _, c := range q.Contenders {
			got = append(got, fmt.Sprint(c.KindName(), " ", c.State, " ", c.Beside, " ", c.Ahead, " ", c.Ignored, " ", c.Nearest))
		}
		want := []string{
			"tierlock read holds 0 0 0 0", "tierlock read holds 1 0 0 0", "tierlock read holds 2 0 0 0", "curator read holds 3 0 0 0",
			"tierlock write waits 0 4 0 3", "tierlock read waits 4 1 0 4",
		}
		need.Equal(t, "seen", strings.Join(got, ", "), strings.Join(want, ", "))
		need.Equal(t, "holders", len(q.Holders()), 4)
		need.Equal(t, "waiting", q.Waiting(), 2)
		l, err := s.reader().List(t.Context(), "/", 100, false)
		need.That(t, fmt.Sprintf("listed: %+v, %v", l, err),
			err == nil && len(l.Locks) == 1 && l.Locks[0].Holders == 4 && l.Locks[0].Queue == 6 && l.Locks[0].Holder.Label == "reader 0")
	})
}

func TestFollowTellsOfEachReader(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		w := s.follow(t, path)
		read := func() string { return s.put(t, path+"/_c_"+uuid+"-__READ__", "", ephemeral, zk.PermAll) }
		w.want(t, "nobody", "")
		s.leave(t, read())
		a, b := read(), read()
		w.want(t, "two readers, after another one", "held /locks/x #1 (1 unseen), held /locks/x #2")
		c := s.put(t, path+"/_c_"+uuid+"-__WRIT__", "", ephemeral, zk.PermAll)
		d := read()
		w.want(t, "a writer, and a reader behind it", "queued /locks/x #3, queued /locks/x #4")
		s.leave(t, a)
		w.want(t, "a reader goes", "released /locks/x #1")
		s.leave(t, b)
		w.want(t, "the last one goes", "held /locks/x #3")
		e := read()
		s.leave(t, c)
		w.want(t, "the writer goes", "held /locks/x #4, held /locks/x #5")
		s.leave(t, d)
		s.leave(t, e)
		w.want(t, "all go", "free /locks/x")
	})
}

// Curator's request replaces the content of a node, and with it the description of its process. If the node was read before, the process is
// still shown.
func TestAskedIsSeenAndTheHolderStillKnown(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		mu := s.locks(t, zknode.WithLabel("billing")).Mutex(path)
		hold := acquire(t, mu)
		w := s.follow(t, path)
		w.want(t, "at first", "held /locks/x #0")
		need.OK(t, mu.Revoke(t.Context()))
		<-hold.RevokeRequested()
		time.Sleep(5 * time.Second) // the time between two searches
		w.want(t, "a while after the request", "asked /locks/x #0")
		time.Sleep(10 * time.Second)
		w.want(t, "later", "")
		c := w.last.Queues[0].Contenders[0]
		need.That(t, fmt.Sprintf("followed: %+v", c), c.Asked && c.Label == "billing")
		c = s.look(t).Contenders[0]
		need.That(t, fmt.Sprintf("seen for the first time: %+v", c), c.Asked && c.Content == "")
	})
}

func TestSemaphoresAreRecognized(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		for i, k := range []int{4, 2} {
			sem := s.locks(t, zknode.WithLabel(fmt.Sprint("worker ", i))).Semaphore(path, 8)
			for range 2 { // two goroutines of one process
				need.Get(sem.Acquire(t.Context(), k/2))(t)
			}
		}
		s.put(t, path+"/leases/_c_"+uuid+"-lease-", "10.0.0.1", ephemeral, zk.PermAll) // a permit of Curator
		go s.locks(t, zknode.WithLabel("waiter")).Semaphore(path, 8).Acquire(t.Context(), 3)
		synctest.Wait()
		s.put(t, path+"/locks/_c_"+uuid+"-lock-", "10.0.0.2", ephemeral, zk.PermAll)

		q := s.look(t)
		sem := q.Semaphore
		need.Must(t, fmt.Sprintf("got %+v, %+v", q, sem),
			sem != nil && sem.Permits == (inspect.Permits{All: 8, InUse: 7}) && len(q.Others) == 0 && len(q.Contenders) == 0)
		got := ""
		for _, share := range sem.Shares {
			got += fmt.Sprint(share.Count, " ", share.Label+share.Content, ", ")
		}
		need.Equal(t, "shares", got, "4 worker 0, 2 worker 1, 1 10.0.0.1, ")
		need.That(t, fmt.Sprintf("queue: %+v", sem.Queue),
			len(sem.Queue) == 2 && sem.Queue[0].State == inspect.Next && sem.Queue[0].Label == "waiter" && sem.Queue[1].State == inspect.Waits)
		l, err := s.reader().List(t.Context(), "/", 100, false)
		need.That(t, fmt.Sprintf("listed: %+v, %v", l, err),
			err == nil && len(l.Locks) == 1 && l.Locks[0].Path == path && *l.Locks[0].Permits == sem.Permits && l.Locks[0].Queue == 2)
	})
}

// Curator's semaphore does not store its number of permits. Other paths may have children with the same names without being semaphores.
func TestOtherSemaphoresAndNone(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		s.put(t, path+"/locks/tenant/a", "", 0, zk.PermAll)
		s.queue(t, path+"/leases/b")
		q := s.look(t)
		need.That(t, fmt.Sprintf("two directories: %+v", q), q.Semaphore == nil && len(q.Others) == 2)
		l := need.Get(s.reader().List(t.Context(), "/", 100, false))(t)
		need.That(t, fmt.Sprintf("listed: %+v", l), len(l.Locks) == 1 && l.Locks[0].Path == path+"/leases/b")
		s.put(t, "/curator/leases/_c_"+uuid+"-lease-", "", ephemeral, zk.PermAll)
		q = need.Get(s.reader().Look(t.Context(), "/curator"))(t)
		need.That(t, fmt.Sprintf("Curator's: %+v", q), q.Semaphore != nil && q.Semaphore.String() == "1 permit in use")
	})
}
