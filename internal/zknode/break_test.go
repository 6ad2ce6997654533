package zknode_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// process.breaks breaks the lock at path: it takes the lock from the contender with this token.
func (p process) breaks(ctx context.Context, token int64) error {
	claim, err := zknode.Tier(p.Client).Claim(path, second.Options{})
	if err != nil {
		return err
	}
	return claim.Break(ctx, token)
}

func wantQueue(t *testing.T, s *zktest.Server, what string, want int) {
	t.Helper()
	synctest.Wait()
	need.Len(t, what+": nodes in the queue", s.Children(path), want)
}

// The function foreign creates a node at path, as another library does: its name has no unique part.
func foreign(t *testing.T, conn *zk.Conn) (node string) {
	t.Helper()
	put(t, conn, 0, "/locks", path)
	return create(t, conn, path+"/lock-", "", zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
}

func tokenOf(s *zktest.Server, node string) int64 {
	_, stat, _ := s.Get(node)
	return stat.Czxid
}

// A pair of znodes is one contender. If one of the two znodes is gone, the other one is still a contender, and Break deletes it.
func TestBreakDeletesAPair(t *testing.T) {
	for _, left := range []int{2, 1} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			n, next := start(t, s, zknode.WithKazoo()).acquire(t), start(t, s, zknode.WithKazoo()).queue(t.Context())
			operator := start(t, s)
			if left == 1 {
				remove(t, raw(t, s), n.Path())
			}
			wantQueue(t, s, "before", left+2)
			need.OK(t, operator.breaks(t.Context(), n.Token()))
			wantQueue(t, s, "afterwards", 2)
			next.granted(t)
			awaitLoss(t, n)
		})
	}
}

// Between the read and the delete, the head and then the whole path may be deleted. If names have no unique part, a new node may then have
// the same name. Break must not delete that node.
func TestBreakSparesAnotherNodeOfTheSameName(t *testing.T) {
	for _, moment := range []string{"setData", "multi"} { // the write of the mark, and the delete
		bubble(t, func(t *testing.T, s *zktest.Server) {
			conn, operator := raw(t, s), start(t, s)
			node := foreign(t, conn)
			token := tokenOf(s, node)
			strike(s, 1, func(f *zktest.Frame) bool { return is(moment, zktest.Request)(f) && !heartbeat(f) }, func(*zktest.Frame) zktest.Action {
				return zktest.Delay(100 * time.Millisecond)
			})
			broken := make(chan error, 1)
			go func() { broken <- operator.breaks(t.Context(), token) }()
			synctest.Wait()
			remove(t, conn, node)
			remove(t, conn, path)
			need.Equal(t, "the name, which is used again", foreign(t, conn), node)
			wantErr(t, moment, <-broken, second.ErrReleased)
			wantQueue(t, s, moment+": another node of the same name", 1)
		})
	}
}

// Each step of a Break may take long: its answer is late, or it is refused and repeated. If the context ends before the deletion is sent,
// the deletion is never sent. If the context ends later, the outcome is unknown.
func TestBreakEndsWithItsContext(t *testing.T) {
	for what, fate := range map[string]zktest.Action{"late": zktest.Delay(2 * time.Second), "refused": zktest.Throttled} {
		for _, op := range []string{"sync", "getChildren2", "getData", "setData", "multi"} {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				node, operator := foreign(t, raw(t, s)), start(t, s)
				token := tokenOf(s, node)
				meet(s, func(f *zktest.Frame) bool { return is(op, zktest.Request)(f) && !heartbeat(f) }, fate)
				ctx, begun := within(t, time.Second), time.Now()
				err := operator.breaks(ctx, token)
				wantErr(t, what+" "+op, err, context.DeadlineExceeded)
				need.Equal(t, what+" "+op+": unknown", errors.Is(err, second.ErrUnknown), op == "multi")
				need.Equal(t, what+" "+op+": took", time.Since(begun), time.Second)
				s.Intercept(nil)
				if time.Sleep(5 * time.Second); op != "multi" {
					wantQueue(t, s, what+" "+op, 1)
				}
			})
		}
	}
}

func TestBreakNamesThePermissionThatIsMissing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n, conn := start(t, s).acquire(t), raw(t, s)
		protect(t, conn, path, zk.PermRead|zk.PermCreate)
		err := start(t, s).breaks(t.Context(), n.Token())
		wantErr(t, "Break", err, zk.ErrNoAuth)
		wantMention(t, err, "DELETE permission on "+path)
		need.That(t, fmt.Sprintf("unknown: %v", err), !errors.Is(err, second.ErrUnknown))
	})
}

// All children are permits, whatever their names are. Children that one transaction has created count as acquired together.
func TestPermitsOfOthersAreBrokenTogether(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, sem := raw(t, s), start(t, s).of(t, 8)
		take(t, sem, 1)
		var creates []any
		for _, name := range []string{"a", "b", "lock-0000000001"} {
			creates = append(creates, &zk.CreateRequest{Path: limits + "/leases/" + name, Acl: zk.WorldACL(zk.PermAll)})
		}
		need.Get(conn.Multi(creates...))(t)
		need.OK(t, sem.Break(t.Context(), tokenOf(s, limits+"/leases/a")))
		wantTaken(t, s, 1)
	})
}

// Between the read and the delete, some of the permits may be released. The delete then deletes the others.
func TestPermitsAreBrokenWhileSomeAreReleased(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		sem, operator := start(t, s).of(t, 8), start(t, s).of(t, 8)
		permits := take(t, sem, 3).taken(t)
		all := need.Get(operator.Contenders(t.Context()))(t)
		strike(s, 1, func(f *zktest.Frame) bool { return is("multi", zktest.Request)(f) && !heartbeat(f) }, func(*zktest.Frame) zktest.Action {
			go sem.Release(permits[:1])
			return zktest.Delay(time.Second)
		})
		need.OK(t, operator.Break(t.Context(), all[0].Token))
		wantTaken(t, s, 0)
	})
}

// During a Break, a process exchanges its place for permits. Either it loses its place, or it gets permits with another token.
func TestPlaceIsBrokenWhileItIsExchangedForPermits(t *testing.T) {
	for _, late := range []string{"exchange", "break"} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			holder, waiter, breaker := start(t, s).of(t, 1), start(t, s), start(t, s)
			permits := take(t, holder, 1).taken(t)
			waiting, operator := take(t, waiter.of(t, 1), 1), breaker.of(t, 1)
			place := need.Get(operator.Contenders(t.Context()))(t)[1]
			of := map[string]int64{"exchange": waiter.session, "break": breaker.session}[late]
			strike(s, 1, func(f *zktest.Frame) bool { return trades(f) && f.Dir == zktest.Request && f.Session == of },
				func(*zktest.Frame) zktest.Action { return zktest.Delay(time.Second) })
			var broken error
			breaks := func() { broken = operator.Break(t.Context(), place.Token) }
			if late == "exchange" {
				need.OK(t, holder.Release(permits))
				synctest.Wait()
				breaks()
				need.OK(t, broken)
			} else {
				over := make(chan struct{})
				go func() { defer close(over); breaks() }()
				synctest.Wait()
				need.OK(t, holder.Release(permits))
				<-over
				wantErr(t, "Break", broken, second.ErrReleased)
			}
			taken := waiting.taken(t)
			wantTaken(t, s, 1)
			need.OK(t, taken[0].ErrAt(zknode.Tier(waiter.Client).Now()))
		})
	}
}
