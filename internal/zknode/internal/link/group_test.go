package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/zktest"
)

const trip = 20 * time.Millisecond

// A crowd is a link to a server that is half a round trip away. The link knows that some paths exist.
type crowd struct {
	*Link
	t     *testing.T
	s     *zktest.Server
	paths []string

	mu  sync.Mutex // guards the field below
	ops []string   // the requests about these paths
}

// inCrowd runs f in virtual time, with a link that knows the given number of paths.
func inCrowd(t *testing.T, paths int, f func(c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.Config{Latency: trip / 2})
		c := &crowd{Link: dial(t, to(s), addr), t: t, s: s}
		for i := range paths {
			c.paths = append(c.paths, c.add(fmt.Sprintf("/q%d", i)))
		}
		c.enter(c.paths[0]).wait() // lets the link learn how long a round trip takes
		s.Intercept(c.note)
		f(c)
	})
}

// eachInCrowd runs f for each case, each time with a new server and eight paths.
func eachInCrowd[C any](t *testing.T, cases map[string]C, f func(c *crowd, of C)) {
	t.Helper()
	need.Each(t, cases, func(t *testing.T, of C) { inCrowd(t, 8, func(c *crowd) { f(c, of) }) })
}

// The method add creates a path. After that the link knows the path.
func (c *crowd) add(path string) string {
	put(c.t, c.Conn, path)
	c.transport.(*dialed).note(path, nil, nil)
	return path
}

func (c *crowd) note(f *zktest.Frame) zktest.Action {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Dir == zktest.Request && strings.HasPrefix(f.Path, "/q") {
		c.ops = append(c.ops, f.Op)
	}
	return zktest.Pass
}

// meet applies an action to the requests or the replies of one kind.
func (c *crowd) meet(op string, dir zktest.Direction, action zktest.Action) {
	c.s.Intercept(func(f *zktest.Frame) zktest.Action {
		if c.note(f); f.Op == op && f.Dir == dir {
			return action
		}
		return zktest.Pass
	})
}

// The method take returns the requests that were sent since its last call.
func (c *crowd) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	ops := c.ops
	c.ops = nil
	return ops
}

func (c *crowd) wantSent(want ...string) {
	c.t.Helper()
	if got := c.take(); !slices.Equal(got, want) {
		c.t.Errorf("sent %q, want %q", got, want)
	}
}

// A turn is a batch of requests.
type turn struct {
	path    string
	answers []Answer
	took    time.Duration
	done    chan struct{}
}

// enter creates a node below path, and lists the path.
func (c *crowd) enter(path string) *turn { return c.enterWith(c.t.Context(), path, nil) }

func (c *crowd) enterWith(ctx context.Context, path string, data []byte) *turn {
	create := &zk.CreateRequest{Path: path + "/lock-", Data: data, Acl: all, Flags: zk.FlagEphemeral | zk.FlagSequence}
	return c.gather(ctx, path, Transaction{create}, List(path))
}

// leave deletes a node below path.
func (c *crowd) leave(path, node string) *turn {
	return c.gather(c.t.Context(), path, Transaction{&zk.DeleteRequest{Path: node, Version: -1}})
}

func (c *crowd) gather(ctx context.Context, path string, requests ...Request) *turn {
	r := &turn{path: path, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		begun := time.Now()
		r.answers = c.Gather(ctx, path, requests...)
		r.took = time.Since(begun)
	}()
	return r
}

// crowded sends so many requests that later requests have to wait for a group. It returns them.
func (c *crowd) crowded() (under []*turn) { return c.enterAll(c.add("/p0")) }

func (r *turn) wait() *turn {
	<-r.done
	return r
}

// wantEntered checks that each node was created, and that the list shows it.
func (c *crowd) wantEntered(turns ...*turn) {
	c.t.Helper()
	for _, r := range turns {
		<-r.done
		if err := errors.Join(r.answers[0].Err, r.answers[1].Err); err != nil {
			c.t.Errorf("%s: %v", r.path, err)
			continue
		}
		node := r.answers[0].Created[0]
		_, stat, ok := c.s.Get(node)
		if !ok || stat.Czxid != r.answers[0].Zxid || stat.EphemeralOwner != r.answers[0].Session.ID {
			c.t.Errorf("%s: %v, and %s is there: %t, of %d", r.path, r.answers[0], node, ok, stat.Czxid)
		}
		if !slices.Contains(r.answers[1].Children, node[len(r.path)+1:]) {
			c.t.Errorf("%s: created %s, and lists %q", r.path, node, r.answers[1].Children)
		}
	}
}

// wantFailed checks that all turns have ended with the error, and have left no nodes.
func (c *crowd) wantFailed(want error, turns ...*turn) {
	c.t.Helper()
	for _, r := range turns {
		<-r.done
		wantErr(c.t, r.path, r.answers[0].Err, want)
		if left := c.s.Children(r.path); len(left) > 0 {
			c.t.Errorf("%s: failed, and there is %q", r.path, left)
		}
	}
}

// enterAll calls enter for each path.
func (c *crowd) enterAll(paths ...string) (turns []*turn) {
	for _, path := range paths {
		turns = append(turns, c.enter(path))
		synctest.Wait()
	}
	return turns
}

func TestWhatWaitsAnywayLeavesAsOne(t *testing.T) {
	inCrowd(t, 5, func(c *crowd) {
		under := c.crowded()
		node := "/q0/" + c.s.Children("/q0")[0]
		turns := c.enterAll(c.paths[1:]...)
		gone := c.leave("/q0", node)
		synctest.Wait()
		c.wantEntered(append(turns, under...)...)
		wantErr(t, "the delete", gone.wait().answers[0].Err, nil)
		need.That(t, "not deleted", !c.s.Exists(node))
		c.wantSent("multi", "multiRead")
		need.Equal(t, "groups, and transactions in them", [2]int64{c.Groups.Load(), c.Grouped.Load()}, [2]int64{2, 5 + 4})
	})
}

func TestOneAloneLeavesAtOnceAsItIs(t *testing.T) {
	inCrowd(t, 2, func(c *crowd) {
		for range 3 {
			need.Equal(t, "it took", c.enter(c.paths[1]).wait().took, trip)
			c.wantSent("create", "getChildren2")
		}
	})
}

// A batch that leaves alone is no group. Other batches do not wait because of it.
func TestNobodyWaitsBecauseOfWhatLeavesAlone(t *testing.T) {
	inCrowd(t, 2, func(c *crowd) {
		alone := c.enterAll("/unknown")[0]
		need.Equal(t, "it took", c.enter(c.paths[1]).wait().took, trip)
		wantErr(t, "below a path that does not exist", alone.wait().answers[0].Err, zk.ErrNoNode)
	})
}

// A batch waits at most for a quarter of a round trip, even if requests come in a steady stream, or if one request is never answered.
func TestNobodyWaitsForOthersForLongerThanAQuarterOfARoundTrip(t *testing.T) {
	inCrowd(t, 60, func(c *crowd) {
		var all sync.WaitGroup
		for i, path := range c.paths[:50] {
			all.Go(func() {
				time.Sleep(time.Duration(i) * trip / 50)
				for range 20 {
					node := c.enter(path).wait().answers[0].Created[0]
					c.leave(path, node).wait()
				}
			})
		}
		time.Sleep(3 * trip)
		for _, path := range c.paths[50:] {
			need.AtMost(t, "it took among others", c.enter(path).wait().took, trip*5/4)
		}
		all.Wait()
	})
	inCrowd(t, 2, func(c *crowd) {
		c.meet("getChildren2", zktest.Reply, zktest.Drop)
		c.crowded()
		c.s.Intercept(c.note)
		time.Sleep(10 * trip)
		need.AtMost(t, "it took behind an unanswered request", c.enter(c.paths[1]).wait().took, trip*5/4)
		c.s.CutAll()
	})
}

func TestWhatWaitsLeavesWhenAllOfAGroupIsAnswered(t *testing.T) {
	for name, row := range map[string]struct {
		late, after, want time.Duration // when the last answer comes, when another batch comes, and how long that batch takes
	}{
		"soon":                    {0, trip * 9 / 10, trip * 11 / 10},
		"not by the first answer": {trip, trip * 3 / 2, trip * 5 / 4},
	} {
		inCrowd(t, 2, func(c *crowd) {
			c.meet("getChildren2", zktest.Reply, zktest.Delay(row.late))
			c.crowded()
			time.Sleep(row.after)
			r := c.enterAll("/q1")[0]
			c.s.Intercept(nil)
			need.Equal(t, name+": it took", r.wait().took, row.want)
		})
	}
}

// All nodes of one transaction have the same ID. Two contenders for one path would therefore have the same token, and need separate
// transactions.
func TestGroupHasOneTransactionForEachPath(t *testing.T) {
	inCrowd(t, 4, func(c *crowd) {
		c.crowded()
		turns := c.enterAll("/q1", "/q2", "/q2", "/q3", "/q2", "/q1")
		c.wantEntered(turns...)
		c.wantSent("multi", "multi", "multi", "multiRead")
		need.Equal(t, "the transaction of the second", turns[1].answers[0].Zxid, turns[0].answers[0].Zxid)
		tokens := map[string]bool{}
		for _, r := range turns {
			token := fmt.Sprint(r.path, r.answers[0].Zxid)
			need.That(t, "two nodes of "+token, !tokens[token])
			tokens[token] = true
		}
	})
}

func TestPathThatIsNotKnownToBeThereGoesAlone(t *testing.T) {
	inCrowd(t, 3, func(c *crowd) {
		c.crowded()
		turns := c.enterAll("/q1", "/q2")
		missing := c.enterAll("/qx")[0]
		c.wantFailed(zk.ErrNoNode, missing)
		c.wantEntered(turns...)
		need.Equal(t, "it took", missing.took, trip)
		c.wantSent("create", "getChildren2", "multi", "multiRead")
		put(t, c.Conn, "/qx")
		c.wantEntered(c.enter("/qx").wait())
		c.take()
		c.crowded()
		c.wantEntered(c.enterAll("/q1", "/qx")...)
		c.wantSent("multi", "multiRead")
	})
}

// After its transaction, the link knows the path, whichever way has created it.
func TestWhatMakesAPathGoesAloneAndThePathIsKnownThen(t *testing.T) {
	for _, known := range []bool{false, true} { // in one case, another client has created the path before
		inCrowd(t, 2, func(c *crowd) {
			if known {
				c.transport.(*dialed).note("/qx", nil, nil)
			}
			c.crowded()
			create := &zk.CreateRequest{Path: "/qx/lock-", Acl: all, Flags: zk.FlagEphemeral | zk.FlagSequence}
			container := &zk.CreateRequest{Path: "/qx", Acl: all, Flags: zk.FlagContainer}
			made := c.gather(c.t.Context(), "/qx", Transaction{create}, Transaction{container, create}, Transaction{container}, List("/qx")).wait()
			wantErr(t, "as it is", made.answers[0].Err, zk.ErrNoNode)
			wantErr(t, "with the path", errors.Join(made.answers[1].Err, made.answers[3].Err), nil)
			need.Equal(t, "it took", made.took, trip)
			c.wantSent("create", "multi", "create", "getChildren2")
			c.crowded()
			gone := c.leave("/qx", made.answers[1].Created[0])
			synctest.Wait()
			c.wantEntered(c.enterAll("/q1")...)
			wantErr(t, "delete", gone.wait().answers[0].Err, nil)
			c.wantSent("multi", "getChildren2")
		})
	}
}

func TestWhatAGroupFailsForCostsTheOthersOneMoreRoundTrip(t *testing.T) {
	eachInCrowd(t, map[string]struct {
		spoil func(c *crowd, path string)
		want  error
	}{
		"the path is gone":   {func(c *crowd, path string) { wantErr(c.t, "delete", c.Conn.Delete(path, -1), nil) }, zk.ErrNoNode},
		"it may not be used": {func(c *crowd, path string) { c.Conn.SetACL(path, zk.WorldACL(zk.PermAdmin|zk.PermRead), -1) }, zk.ErrNoAuth},
		"its numbers are used up": {func(c *crowd, path string) {
			c.s.SetSequence(path, 1<<31-1)
			c.Conn.Create(path+"/lock-2147483647", nil, zk.FlagEphemeral, all)
		}, zk.ErrNodeExists},
	}, func(c *crowd, of struct {
		spoil func(c *crowd, path string)
		want  error
	}) {
		of.spoil(c, "/q3")
		c.take()
		c.crowded()
		turns := c.enterAll("/q1", "/q2", "/q3", "/q4")
		bad := turns[2].wait()
		wantErr(c.t, "the bad one", bad.answers[0].Err, of.want)
		c.wantEntered(turns[0], turns[1], turns[3])
		for _, r := range turns {
			if r.took > trip*9/4 {
				c.t.Errorf("%s took %v", r.path, r.took)
			}
		}
		if sent := c.take(); len(sent) != 2+3*2 || sent[0] != "multi" {
			c.t.Errorf("sent %q", sent)
		}
	})
}

// If the requests for a path are refused again and again, later batches leave alone. They need no additional request each time.
func TestWhatIsRefusedLeavesAloneUntilItSucceeds(t *testing.T) {
	without := func(perm int32) []zk.ACL { return zk.WorldACL(zk.PermAll &^ perm) }
	setACL := func(c *crowd, acl []zk.ACL) { need.OK(c.t, need.ErrOf(c.Conn.SetACL("/q1", acl, -1))) }
	inCrowd(t, 64, func(c *crowd) {
		round := func(refused error) (sent int) {
			c.t.Helper()
			c.crowded()
			turns := c.enterAll(c.paths[2:]...)
			c.take() // drops the requests of the last round
			bad := c.enterAll("/q1")[0]
			c.wantEntered(turns...)
			wantErr(c.t, "the key", bad.wait().answers[0].Err, refused)
			return len(c.take())
		}
		need.Equal(t, "requests when all succeed", round(nil), 2)
		setACL(c, without(zk.PermCreate))
		need.AtLeast(t, "requests when the key is refused in a group", round(zk.ErrNoAuth), 64)
		for range 5 {
			need.Equal(t, "requests when it is refused again: two for it, two for all others", round(zk.ErrNoAuth), 4)
		}
		setACL(c, without(0))
		need.Equal(t, "requests when it succeeds again", round(nil), 4)
		need.Equal(t, "requests after that", round(nil), 2)
	})
	inCrowd(t, 64, func(c *crowd) { // creating nodes many times does not show that they may be deleted
		setACL(c, without(zk.PermDelete))
		for i := range 5 {
			node := c.enter("/q1").wait().answers[0].Created[0]
			c.crowded()
			turns := c.enterAll(c.paths[2:]...)
			c.take()
			bad := c.leave("/q1", node)
			synctest.Wait()
			c.wantEntered(turns...)
			wantErr(c.t, "the delete", bad.wait().answers[0].Err, zk.ErrNoAuth)
			if sent := len(c.take()); i > 0 && sent != 3 {
				t.Errorf("%d requests, want one for the delete and two for all others", sent)
			}
		}
	})
}

// If the answer to a group is lost, the outcome of each of its batches is unknown, as that of a single transaction would be.
func TestLostGroupIsUnknownToAll(t *testing.T) {
	eachInCrowd(t, map[string]struct {
		op    string
		dir   zktest.Direction
		nodes int // the number of nodes that exist then
	}{
		"the request":            {"multi", zktest.Request, 0},
		"the answer":             {"multi", zktest.Reply, 1},
		"the answer to the list": {"multiRead", zktest.Reply, 1},
	}, func(c *crowd, of struct {
		op    string
		dir   zktest.Direction
		nodes int
	}) {
		c.meet(of.op, of.dir, zktest.Drop)
		c.crowded()
		turns := c.enterAll("/q1", "/q2", "/q3")
		time.Sleep(3 * trip)
		c.s.CutAll()
		for _, r := range turns {
			r.wait()
			lost := r.answers[0]
			if of.op == "multiRead" {
				wantErr(c.t, "create in "+r.path, r.answers[0].Err, nil)
				lost = r.answers[1]
			}
			wantErr(c.t, "the lost request for "+r.path, lost.Err, zk.ErrConnectionClosed)
			if got := len(c.s.Children(r.path)); got != of.nodes {
				c.t.Errorf("%s: %d nodes", r.path, got)
			}
		}
	})
}

func TestRefusedGroupIsRefusedToAll(t *testing.T) {
	inCrowd(t, 4, func(c *crowd) {
		c.meet("multi", zktest.Request, zktest.Throttled)
		c.crowded()
		for _, r := range c.enterAll("/q1", "/q2", "/q3") {
			wantMention(t, r.wait().answers[0].Err, fmt.Sprint(wire.CodeThrottled))
			wantErr(t, "the list", r.answers[1].Err, nil)
		}
		c.meet("multiRead", zktest.Request, zktest.Throttled)
		c.crowded()
		for _, r := range c.enterAll("/q1", "/q2", "/q3") {
			wantErr(t, "create", r.wait().answers[0].Err, nil)
			wantMention(t, r.answers[1].Err, fmt.Sprint(wire.CodeThrottled))
		}
	})
}

func TestListThatIsRefusedIsRefusedToItsOwnerOnly(t *testing.T) {
	inCrowd(t, 4, func(c *crowd) {
		c.Conn.SetACL("/q2", zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
		c.crowded()
		turns := c.enterAll("/q1", "/q2", "/q3")
		c.wantEntered(turns[0], turns[2])
		wantErr(t, "create", turns[1].wait().answers[0].Err, nil)
		wantErr(t, "the list", turns[1].answers[1].Err, zk.ErrNoAuth)
	})
}

func TestOtherReadsBehindATransactionLeaveWithTheLists(t *testing.T) {
	inCrowd(t, 3, func(c *crowd) {
		c.crowded()
		turns := c.enterAll("/q1")
		create := &zk.CreateRequest{Path: "/q2/lock-", Acl: all, Flags: zk.FlagEphemeral | zk.FlagSequence}
		r := c.gather(t.Context(), "/q2", Transaction{create}, List("/q2"), Get("/q2/nothing"), Get("/q2"))
		synctest.Wait()
		c.wantEntered(append(turns, r)...)
		wantErr(t, "the missing node", r.answers[2].Err, zk.ErrNoNode)
		if _, stat, _ := c.s.Get("/q2"); r.answers[3].Err != nil || r.answers[3].Stat.Czxid != stat.Czxid || r.answers[3].Stat.NumChildren != 1 {
			t.Errorf("got %+v, want %+v", r.answers[3], stat)
		}
		c.wantSent("multi", "multiRead")
	})
}

// A heard is a watcher that counts its events.
type heard struct {
	Watcher
	times atomic.Int32
}

func newHeard() *heard {
	h := new(heard)
	h.Notify = func() { h.times.Add(1) }
	return h
}

func (h *heard) want(t *testing.T, what string, times int32, gone bool) {
	t.Helper()
	synctest.Wait()
	if got := h.times.Load(); got != times || h.Gone.Load() != gone {
		t.Errorf("%s: notified %d times, gone: %t; want %d, %t", what, got, h.Gone.Load(), times, gone)
	}
}

// watched reads and watches two nodes and two lists, in a group with other requests.
func (c *crowd) watched() (nodes, lists [2]*heard, turns []*turn) {
	for i, path := range c.paths[1:3] {
		put(c.t, c.Conn, path+"/node")
		c.Conn.Set(path+"/node", []byte(path), -1)
		nodes[i], lists[i] = newHeard(), newHeard()
	}
	c.take()
	c.crowded()
	for i, path := range c.paths[1:3] {
		turns = append(turns, c.gather(c.t.Context(), path, c.Reading(path+"/node", &nodes[i].Watcher), c.Listing(path, &lists[i].Watcher)))
		synctest.Wait()
	}
	return nodes, lists, append(turns, c.enterAll(c.paths[3])...)
}

func TestWatchesOfAGroupAreSetTogether(t *testing.T) {
	inCrowd(t, 4, func(c *crowd) {
		nodes, lists, turns := c.watched()
		c.wantEntered(turns[2])
		c.wantSent("create", "setWatches", "multiRead")
		for i, path := range c.paths[1:3] {
			seen := turns[i].wait().answers
			need.Equal(t, "the data", string(seen[0].Data), path)
			need.List(t, "the list", seen[1].Children, "node")
			kept, ok := c.Events.Seen(path + "/node")
			need.That(t, "nothing was kept of the node", ok && string(kept.Data) == path)
			nodes[i].want(t, "the node, before anything has happened", 0, false) // the change before the watch causes no event
			lists[i].want(t, "the list, before anything has happened", 0, false)
		}
		need.OK(t, c.Conn.Delete("/q1/node", -1))
		put(t, c.Conn, "/q2/other")
		time.Sleep(trip)
		nodes[0].want(t, "the node that was deleted", 1, true)
		nodes[1].want(t, "the other one", 0, false)
		lists[0].want(t, "the list of the node that was deleted", 1, false)
		lists[1].want(t, "the list that another one came to", 1, false)
	})
}

func TestWhatIsNotThereWhenItIsWatchedIsToldOf(t *testing.T) {
	inCrowd(t, 4, func(c *crowd) {
		gone, other := newHeard(), newHeard()
		c.crowded()
		missing := c.gather(t.Context(), "/q1", c.Reading("/q1/node", &gone.Watcher))
		synctest.Wait()
		unknown := c.gather(t.Context(), "/qx", c.Reading("/qx/node", &newHeard().Watcher))
		synctest.Wait()
		turns := c.enterAll("/q2")
		wantErr(t, "read", missing.wait().answers[0].Err, zk.ErrNoNode)
		wantErr(t, "read below a path that does not exist", unknown.wait().answers[0].Err, zk.ErrNoNode)
		c.wantEntered(turns...)
		c.wantSent("create", "setWatches", "multiRead")
		gone.want(t, "the watcher of the missing node", 1, true)
		need.That(t, "a later watcher takes the path for watched", !c.Events.listen("/q1/node", &other.Watcher))
		need.That(t, "its path is not known any more", knows(c.transport.(*dialed), "/q1"))
		need.Equal(t, "watches that are left", c.s.Watches(), 0)
	})
}

// A path counts as watched only if the server has confirmed that. Otherwise a watcher would wait for an event that never comes.
func TestNothingIsTakenForWatchedUnlessTheServerSaysSo(t *testing.T) {
	for op, action := range map[string]zktest.Action{"setWatches": zktest.Throttled, "multiRead": zktest.Throttled} {
		inCrowd(t, 4, func(c *crowd) {
			c.meet(op, zktest.Request, action)
			nodes, lists, turns := c.watched()
			for i, path := range c.paths[1:3] {
				for _, a := range turns[i].wait().answers {
					wantMention(t, a.Err, fmt.Sprint(wire.CodeThrottled))
				}
				need.That(t, op+": the node is taken for watched", !c.Events.listen(path+"/node", &nodes[i].Watcher))
				need.That(t, op+": the list is taken for watched", !c.Events.listen(path, &lists[i].Watcher))
			}
			wantErr(t, "the create beside", turns[2].wait().answers[0].Err, nil)
		})
	}
}

func TestWatchesWithoutAnAnswerAreNone(t *testing.T) {
	for _, op := range []string{"setWatches", "multiRead"} {
		inCrowd(t, 4, func(c *crowd) {
			c.meet(op, zktest.Reply, zktest.Cut)
			nodes, _, turns := c.watched()
			for i, path := range c.paths[1:3] {
				for _, a := range turns[i].wait().answers {
					wantErr(t, op, a.Err, zk.ErrConnectionClosed)
				}
				need.That(t, op+": the node is taken for watched", !c.Events.listen(path+"/node", &nodes[i].Watcher))
			}
		})
	}
}

func TestWatchesOfOneAloneLeaveAsTheyAre(t *testing.T) {
	inCrowd(t, 2, func(c *crowd) {
		put(t, c.Conn, "/q1/node")
		c.take()
		w := newHeard()
		r := c.gather(t.Context(), "/q1", c.Listing("/q1", &w.Watcher), c.Reading("/q1/node", &w.Watcher)).wait()
		wantErr(t, "reads", errors.Join(r.answers[0].Err, r.answers[1].Err), nil)
		need.Equal(t, "they took", r.took, trip)
		c.wantSent("getChildren2", "getData")
		need.OK(t, c.Conn.Delete("/q1/node", -1))
		time.Sleep(trip)
		w.want(t, "the node that was deleted", 2, true)
	})
}

// Reads of nodes may have long answers, too, because nodes of other programs may have much data.
func TestAnswerThatIsTooLongIsAskedForOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.Config{Latency: trip / 2})
		f := newForger(s)
		c := &crowd{Link: dial(t, f.config(), addr), t: t, s: s}
		for i := range 4 {
			c.paths = append(c.paths, c.add(fmt.Sprintf("/q%d", i)))
		}
		c.enter("/q0").wait()
		f.next(wire.OpMultiRead, with(make([]byte, maxFrame)))
		_, _, turns := c.watched()
		for _, r := range turns[:2] {
			wantErr(t, "the reads, each by itself", r.wait().answers[1].Err, nil)
		}
		s.Intercept(c.note)
		c.crowded()
		c.wantEntered(c.enterAll("/q1", "/q3")...)
		c.wantSent("multi", "getChildren2", "getChildren2")
	})
}

// Servers before 3.6 close the connection when they get an unknown request. The link must try such a request only once.
func TestServersThatListOneByOneAreAskedToOnlyOnce(t *testing.T) {
	inCrowd(t, 4, func(c *crowd) {
		var hungUp bool
		c.s.Intercept(func(f *zktest.Frame) zktest.Action {
			switch c.note(f); {
			case f.Op != "multiRead":
			case f.Dir == zktest.Request:
				return zktest.Error(wire.Code(wire.CodeUnimplemented))
			default:
				hungUp = true
			}
			return zktest.Pass
		})
		c.crowded()
		for _, r := range c.enterAll("/q1", "/q2", "/q3") {
			wantErr(t, "the list", r.wait().answers[1].Err, zk.ErrConnectionClosed)
		}
		need.That(t, "the link has not asked for several lists", hungUp)
		c.take()
		c.crowded()
		c.wantEntered(c.enterAll("/q1", "/q2", "/q3")...)
		c.wantSent("multi", "getChildren2", "getChildren2", "getChildren2")
		nodes, lists, turns := c.watched()
		c.wantEntered(turns[2])
		c.wantSent("create", "getData", "getChildren2", "getData", "getChildren2", "getChildren2")
		need.OK(t, c.Conn.Delete("/q1/node", -1))
		time.Sleep(trip)
		nodes[0].want(t, "the node that was deleted", 1, true)
		lists[0].want(t, "its list", 1, false)
	})
}

func TestWhoLeavesBeforeTheGroupDoesIsNotInIt(t *testing.T) {
	inCrowd(t, 5, func(c *crowd) {
		c.crowded()
		ctx, cancel := context.WithCancel(c.t.Context())
		left := []*turn{c.enterWith(ctx, "/q1", nil)} // the goroutine of this request has to send the group
		synctest.Wait()
		turns := c.enterAll("/q2", "/q3")
		left = append(left, c.enterWith(ctx, "/q4", nil))
		synctest.Wait()
		cancel()
		c.wantEntered(turns...)
		c.wantFailed(zk.ErrNoServer, left...)
		c.wantSent("multi", "multiRead")
		c.crowded()
		c.wantFailed(zk.ErrNoServer, c.enterWith(ctx, "/q1", nil)) // the context of this one ended while it waited
		time.Sleep(2 * trip)
		need.Equal(t, "it took when nothing was under way", c.enter("/q2").wait().took, trip)
	})
}

func TestGroupThatWaitsDoesNotLeaveWhenTheConnectionHasEnded(t *testing.T) {
	inCrowd(t, 3, func(c *crowd) {
		c.crowded()
		turns := c.enterAll("/q1", "/q2")
		begun := time.Now()
		c.s.CutAll()
		c.wantFailed(zk.ErrNoServer, turns...)
		need.Equal(t, "until that is known", time.Since(begun), 0)
		c.wantSent()
	})
}

// The library reports the end of a connection a little later. If the process was stopped for a long time, the link must not take that time
// for the last round trip.
func TestNobodyWaitsForOthersWhenTheConnectionHasEnded(t *testing.T) {
	inCrowd(t, 2, func(c *crowd) {
		c.crowded()
		s := c.transport.(*dialed).socket.Load()
		s.kill()
		begun := time.Now()
		s.gather(&batch{path: "/q1"})
		took := time.Since(begun)
		need.That(t, fmt.Sprintf("waited for %v", took), took == 0)
	})
}

func TestFramesOfGroupsAreBounded(t *testing.T) {
	inCrowd(t, 150, func(c *crowd) {
		c.crowded()
		c.wantEntered(c.enterAll(c.paths...)...)
		c.wantSent("multi", "multi", "multi", "multiRead", "multiRead", "multiRead")
		c.crowded()
		var turns []*turn
		for _, path := range c.paths[:5] {
			turns = append(turns, c.enterWith(c.t.Context(), path, make([]byte, mostBytes/5*2)))
			synctest.Wait()
		}
		c.wantEntered(turns...)
		c.wantSent("multi", "multi", "create", "multiRead")
		c.transport.(*dialed).longest.Store(mostListed / 3)
		c.crowded()
		c.wantEntered(c.enterAll(c.paths[:4]...)...)
		c.wantSent("multi", "multiRead", "multiRead")
		c.transport.(*dialed).longest.Store(mostListed * 2)
		c.crowded()
		c.wantEntered(c.enterAll(c.paths[:2]...)...)
		c.wantSent("multi", "getChildren2", "getChildren2")
	})
}

// A rush of requests needs a large buffer. The link must not keep it until the connection ends.
func TestBufferOfARushIsNotKept(t *testing.T) {
	inCrowd(t, 1, func(c *crowd) {
		c.enterWith(c.t.Context(), c.paths[0], make([]byte, 2*mostBytes)).wait()
		c.enter(c.paths[0]).wait()
		need.AtMost(t, "bytes of the buffer", cap(c.transport.(*dialed).socket.Load().frames), mostBytes)
	})
}

func TestLongestListIsRemembered(t *testing.T) {
	inCrowd(t, 3, func(c *crowd) {
		longest := func() int64 { return c.transport.(*dialed).longest.Load() }
		for i := range 100 {
			put(t, c.Conn, fmt.Sprintf("/q1/%096d", i))
		}
		c.enter("/q1").wait()
		need.Between(t, "bytes", longest(), 10_000, 11_000)
		for i := range 100 {
			put(t, c.Conn, fmt.Sprintf("/q2/%0196d", i))
		}
		c.crowded()
		c.wantEntered(c.enterAll("/q0", "/q2")...)
		need.Between(t, "bytes in a group", longest(), 20_000, 21_000)
	})
}

// If a list is too long, only its own request fails. Requests of the client library get the same error.
func TestListThatIsTooLongIsRefusedAloneAndByName(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		f := newForger(s)
		l := dial(t, f.config(), addr)
		put(t, l.Conn, "/q")
		f.next(wire.OpGetChildren2, with(make([]byte, maxFrame)))
		asked := l.Ask(Get("/q"), List("/q"), Get("/q"))
		wantErr(t, "behind the list", errors.Join(asked[0].Err, asked[2].Err), nil)
		wantErr(t, "the list", asked[1].Err, wire.Code(wire.CodeTooLong))
		wantMention(t, asked[1].Err, "32 MiB")
		f.next(wire.OpGetChildren2, with(make([]byte, maxFrame)))
		_, _, err := l.Conn.Children("/q")
		wantErr(t, "the library's", wire.Named(err), wire.Code(wire.CodeTooLong))
		need.OK(t, l.Err())
	})
}

// The answer to a write is never so long. An error would say that nothing was written, and therefore the connection ends instead.
func TestAnswerToAWriteThatIsTooLongEndsTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		f := newForger(s)
		l := dial(t, f.config(), addr)
		f.next(wire.OpCreate, with(make([]byte, maxFrame)))
		a := l.Ask(Transaction{&zk.CreateRequest{Path: "/q", Acl: all, Flags: zk.FlagEphemeral}})[0]
		wantErr(t, "create", a.Err, zk.ErrConnectionClosed)
	})
}

// The link forgets paths after a while. Otherwise each new path would take more memory.
func TestPathsAreForgottenInTime(t *testing.T) {
	d := newDialed()
	d.note("unknown", nil, zk.ErrConnectionClosed)
	need.That(t, "known by an answer that was lost", !knows(d, "unknown"))
	for i := range mostPaths + 1 {
		d.note(fmt.Sprint(i), nil, nil)
	}
	known := 0
	d.paths.Range(func(_, _ any) bool { known++; return true })
	need.AtMost(t, "paths", known, mostPaths)
	need.That(t, "the last one is not known", knows(d, fmt.Sprint(mostPaths)))
	d.note(fmt.Sprint(mostPaths), nil, zk.ErrConnectionClosed)
	need.That(t, "forgotten because of a connection", knows(d, fmt.Sprint(mostPaths)))
	d.note(fmt.Sprint(mostPaths), nil, zk.ErrNoNode)
	need.That(t, "not forgotten", !knows(d, fmt.Sprint(mostPaths)))
}

func knows(d *dialed, path string) bool {
	_, known := d.paths.Load(path)
	return known
}

// If the server's answer to an executed transaction is missing or malformed, the error has no code, because the outcome is unknown.
func TestAnswerThatDoesNotFitAGroupIsNotBelieved(t *testing.T) {
	ok := result(wire.OpError, false)
	type row struct {
		op   int32
		body []byte
	}
	need.Each(t, map[string]row{
		"no results":          {wire.OpMulti, body(result(-1, true))},
		"of other operations": {wire.OpMulti, body(result(wire.OpDelete, false), result(wire.OpDelete, false), result(-1, true))},
		"of other paths":      {wire.OpMulti, body(result(wire.OpCreate, false), "/x", result(wire.OpCreate, false), "/y", result(-1, true))},
		"errors of no code":   {wire.OpMulti, body(ok, 0, ok, 0, result(-1, true))},
		"no lists":            {wire.OpMultiRead, body(result(-1, true))},
		"other lists":         {wire.OpMultiRead, body(result(wire.OpDelete, false), result(wire.OpDelete, false), result(-1, true))},
		"nodes for lists":     {wire.OpMultiRead, body(result(wire.OpGetData, false), "", make([]byte, wire.StatSize), result(-1, true))},
		"lists of no code":    {wire.OpMultiRead, body(ok, 0, ok, 0, result(-1, true))},
	}, func(t *testing.T, forged row) {
		synctest.Test(t, func(t *testing.T) {
			s := zktest.Start(t, zktest.Config{Latency: trip / 2})
			f := newForger(s)
			c := &crowd{Link: dial(t, f.config(), addr), t: t, s: s}
			c.enter(c.add("/q0")).wait()
			c.add("/q1")
			c.add("/q2")
			c.crowded()
			turns := c.enterAll("/q1", "/q2")
			f.next(forged.op, with(forged.body))
			for _, r := range turns {
				at := 0
				if forged.op == wire.OpMultiRead {
					at = 1
				}
				if r.wait(); r.answers[at].Err == nil || errors.Is(r.answers[at].Err, errAgain) || len(s.Children(r.path)) != 1 {
					t.Errorf("%s: believed %v", r.path, r.answers[at])
				}
			}
			need.That(t, "not forged", f.done())
		})
	})
}

func TestMalformedListsEndTheConnection(t *testing.T) {
	for name, list := range map[string][]byte{
		"a billion":            body(result(wire.OpGetChildren, false), huge),
		"of a negative number": body(result(wire.OpGetChildren, false), -1, result(-1, true)),
		"without an end":       body(result(wire.OpGetChildren, false), 1, "a"),
		"behind half a node":   body(result(wire.OpGetData, false), "a", 1),
	} {
		need.That(t, name+": believed", checkReply(wire.OpMultiRead, wire.Decoder{Rest: list}) != nil)
	}
}
