package zklock_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

const (
	wornFrom = 1 << 30 // number from which on a path is to be made anew
	wornStep = 1 << 20 // after how many it is tried again
)

// wear makes the next node of the lock have this number.
func (p process) wear(t *testing.T, s *zktest.Server, number int32) {
	t.Helper()
	n := p.acquire(t)
	s.SetSequence(path, number)
	if err := n.Release(); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func numberOf(node string) int32 {
	n, _ := strconv.Atoi(node[len(node)-10:])
	return int32(n)
}

// numbers records the numbers of the lock nodes that are created, by session.
func numbers(s *zktest.Server) (taken func(session int64) []int32) {
	var mu sync.Mutex // guards the field below
	bySession := make(map[int64][]int32)
	s.OnChange(func(_ zktest.View, changes []zktest.Change) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range changes {
			if c.Kind == zktest.Created && strings.Contains(c.Path, "-lock-") {
				bySession[c.Session] = append(bySession[c.Session], numberOf(c.Path))
			}
		}
	})
	return func(session int64) []int32 {
		mu.Lock()
		defer mu.Unlock()
		return bySession[session]
	}
}

// A journal is what was logged.
type journal struct {
	mu   sync.Mutex // guards the field below
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// logged returns an option and what is logged with it.
func logged() (zklock.Option, *journal) {
	log := new(journal)
	return zklock.WithLogger(slog.New(slog.NewTextHandler(log, nil))), log
}

// requeue gives n up and queues again.
func (p process) requeue(t *testing.T, n *zklock.Node) *request {
	t.Helper()
	return submit(func() (*zklock.Node, error) { return n.Requeue(t.Context()) })
}

func TestWornPathBeginsAnewUnderContention(t *testing.T) {
	for name, opts := range map[string][]zklock.Option{"": nil, "pairs": {zklock.WithKazoo()}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				processes := []process{start(t, s, opts...), start(t, s, opts...), start(t, s, opts...)}
				processes[0].wear(t, s, wornFrom-5)
				taken, begun := numbers(s), time.Now()
				var wg sync.WaitGroup
				for _, p := range processes {
					wg.Go(func() {
						n := p.acquire(t)
						for range 20 {
							time.Sleep(time.Millisecond)
							var err error
							if n, err = n.Requeue(t.Context()); err != nil {
								t.Error(err)
								return
							}
						}
						n.Release()
					})
				}
				wg.Wait()
				if d := time.Since(begun); d > 200*time.Millisecond {
					t.Errorf("63 turns of a millisecond took %v", d)
				}
				for _, p := range processes {
					got, worn := taken(p.session), 0
					for _, n := range got {
						if n >= wornFrom {
							worn++
						}
					}
					if last := got[len(got)-1]; worn > 1 || last > 1000 {
						t.Errorf("%d turns with worn numbers, the last one with %d: %d", worn, last, got)
					}
				}
				wantEmpty(t, s)
			})
		})
	}
}

func TestWornPathBeginsAnewAtTheReleaseOfTheOnlyOne(t *testing.T) {
	for name, giveUp := range map[string]func(p process, n *zklock.Node) (*zklock.Node, error){
		"release": func(p process, n *zklock.Node) (*zklock.Node, error) {
			n.Release()
			return p.lock.Acquire(context.Background())
		},
		"requeue": func(_ process, n *zklock.Node) (*zklock.Node, error) { return n.Requeue(context.Background()) },
		"release, and nobody wants it": func(p process, n *zklock.Node) (*zklock.Node, error) {
			n.Release()
			synctest.Wait()
			return p.lock.TryAcquire(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				p := start(t, s)
				p.wear(t, s, wornFrom)
				n, begun := p.acquire(t), time.Now()
				next, err := giveUp(p, n)
				if err != nil {
					t.Fatal(err)
				}
				if got := numberOf(next.Path()); got != 0 || next.Token() <= n.Token() || time.Since(begun) > 0 {
					t.Errorf("number %d, token %d after %d, after %v", got, next.Token(), n.Token(), time.Since(begun))
				}
				next.Release()
			})
		})
	}
}

func TestPathThatIsNotWornYetIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.wear(t, s, wornFrom-1)
		tr := record(s)
		n := p.acquire(t)
		select {
		case <-n.Contested():
			t.Error("contested by nobody")
		default:
		}
		synctest.Wait()
		tr.take()
		n.Release()
		if got := tr.take(); len(got) != 1 || !s.Exists(path) {
			t.Errorf("released with %v, want a delete; the path is there: %t", got, s.Exists(path))
		}
	})
}

// Whoever waits outside the queue cannot be seen.
func TestNodeOfAWornPathIsContestedForEver(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		time.Sleep(time.Hour)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		tr := record(s)
		<-n.Contested()
		if got := n.ContestedFor(); got < time.Minute || len(tr.take()) > 0 {
			t.Errorf("contested for %v; looked to find out", got)
		}
		n.Release()
	})
}

// obstacles are what keeps a worn path from being deleted, and how it is done away with.
var obstacles = map[string]struct {
	acl  []zk.ACL // of the parent of the path
	put  func(t *testing.T, conn *zk.Conn)
	lift func(conn *zk.Conn)
}{
	"a plain path": {
		put: func(t *testing.T, conn *zk.Conn) { put(t, conn, 0, path) },
	},
	"a container of somebody else": {
		put: func(_ *testing.T, conn *zk.Conn) {
			conn.CreateContainer(path, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
		},
	},
	"no permission": {
		acl:  zk.WorldACL(zk.PermAll &^ zk.PermDelete),
		put:  func(*testing.T, *zk.Conn) {},
		lift: func(conn *zk.Conn) { conn.SetACL("/locks", zk.WorldACL(zk.PermAll), -1) },
	},
	"a foreign child": {
		put: func(t *testing.T, conn *zk.Conn) {
			conn.CreateContainer(path, []byte(ours), zk.FlagContainer, zk.WorldACL(zk.PermAll))
			put(t, conn, 0, path+"/readme")
		},
		lift: func(conn *zk.Conn) { conn.Delete(path+"/readme", -1) },
	},
	"a lock below": {
		put: func(t *testing.T, conn *zk.Conn) {
			conn.CreateContainer(path, []byte(ours), zk.FlagContainer, zk.WorldACL(zk.PermAll))
			conn.CreateContainer(path+"/y", []byte(ours), zk.FlagContainer, zk.WorldACL(zk.PermAll))
		},
		lift: func(conn *zk.Conn) { conn.Delete(path+"/y", -1) },
	},
}

func TestWornPathThatCannotBeDeletedIsQueuedOnAndTriedAgainLater(t *testing.T) {
	for name, obstacle := range obstacles {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				conn := raw(t, s)
				if obstacle.acl == nil {
					obstacle.acl = zk.WorldACL(zk.PermAll)
				}
				if _, err := conn.Create("/locks", nil, 0, obstacle.acl); err != nil {
					t.Fatal(err)
				}
				obstacle.put(t, conn)
				option, log := logged()
				p := start(t, s, option)
				p.wear(t, s, wornFrom+3)

				n, begun := p.acquire(t), time.Now()
				for i := range int32(10) {
					if got := numberOf(n.Path()); got != wornFrom+3+i {
						t.Fatalf("turn %d with number %d", i, got)
					}
					n = p.requeue(t, n).granted(t)
				}
				if d := time.Since(begun); d > 0 {
					t.Errorf("took %v", d)
				}
				if got := log.String(); strings.Count(got, "sequence numbers") != 1 || !strings.Contains(got, "path="+path+" ") {
					t.Errorf("logged:\n%s", got)
				}
				n.Release()
				if obstacle.lift == nil {
					return
				}
				obstacle.lift(conn)
				n = p.acquire(t)
				s.SetSequence(path, wornFrom+wornStep-1)
				for _, want := range []int32{wornFrom + wornStep - 1, wornFrom + wornStep, 0, wornFrom, 0} {
					if want == wornFrom {
						s.SetSequence(path, wornFrom)
					}
					n = p.requeue(t, n).granted(t)
					if got := numberOf(n.Path()); got != want {
						t.Errorf("number %d, want %d", got, want)
					}
				}
				n.Release()
			})
		})
	}
}

// The other one has deleted the path and made it anew before we look.
func TestNewPathIsQueuedOnThoughItIsInUse(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, q := start(t, s), start(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		other := q.queue(t.Context())
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Session == p.session && f.Stage == zktest.Request && f.Op == zktest.OpSync && !s.Exists(n.Path()) {
				return zktest.Delay(10 * time.Millisecond)
			}
			return zktest.Pass
		})
		r := p.requeue(t, n)
		last := q.requeue(t, other.granted(t)).granted(t)
		time.Sleep(100 * time.Millisecond)
		if names := s.Children(path); len(names) != 2 || numberOf(last.Path()) != 0 {
			t.Errorf("the queue is %q", names)
		}
		last.Release()
		r.granted(t).Release()
	})
}

// No event comes, as after a reconnect whose watches could not be set.
func TestWornPathThatDrainsUnseenBeginsAnew(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, q := start(t, s), start(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		other := q.queue(t.Context())
		r := p.requeue(t, n)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Event && f.Session == p.session || f.Session == q.session && f.Stage == zktest.Request && f.Op == zktest.OpSync {
				return zktest.Drop
			}
			return zktest.Pass
		})
		other.granted(t).Release()
		begun := time.Now()
		r.await(t)
		if d := time.Since(begun); d > timeout/4 || numberOf(r.node.Path()) != 0 {
			t.Errorf("number %d after %v", numberOf(r.node.Path()), d)
		}
		r.node.Release()
	})
}
