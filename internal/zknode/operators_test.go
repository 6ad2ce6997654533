package zknode_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// From 3.8.4 and 3.9.2 on, a server does not return even the stat of a node that the client may not read. Such a contender is listed by its
// name.
func TestContenderThatMayNotBeReadIsShownByItsName(t *testing.T) {
	for _, c := range []struct {
		op   string
		meet func(*zktest.Server, func(*zktest.Frame) bool, zktest.Action)
		fate zktest.Action
	}{
		{"getData", meet, zktest.Error(zk.ErrNoAuth)}, {"exists", meet, zktest.Error(zk.ErrNoAuth)}, {"exists", meetOnce, zktest.Cut},
		{"getData", meetOnce, zktest.Cut},
	} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			node := secret(t, raw(t, s))
			p := start(t, s)
			c.meet(s, is(c.op, zktest.Request), c.fate)
			queue, err := p.lock.Contenders(t.Context())
			need.Must(t, fmt.Sprintf("got %+v, %v; want %s", queue, err, node),
				err == nil && len(queue) == 1 && path+"/"+queue[0].Node == node && queue[0].Data == nil)
			known := c.op != "exists" || c.fate == zktest.Cut
			need.Equal(t, fmt.Sprintf("%s meets %v: whether the session is known", c.op, c.fate), queue[0].Session != 0, known)
		})
	}
}

// The content of another program, or of a later version, may have another meaning. Nothing of it is shown.
func TestContentInAnotherFormSaysNothingOfItsProcess(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		put(t, conn, 0, "/locks", path)
		for i, data := range []string{`{"v":2,"host":"a","pid":7,"linger_ms":5}`, `{"host":"a","pid":7}`, `{"v":1,"host":"a","pid":7`, ``} {
			create(t, conn, fmt.Sprintf("%s/lock-%010d", path, i), data, 0, zk.WorldACL(zk.PermAll))
		}
		queue := need.Get(p.lock.Contenders(t.Context()))(t)
		need.Len(t, "contenders", queue, 4)
		for _, c := range queue {
			need.That(t, fmt.Sprintf("%s: read %+v", c.Data, c), c.Host == "" && c.PID == 0 && c.Linger == 0)
		}
	})
}

func TestQuestionLeavesNothingWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		ctx, cancel := context.WithCancel(t.Context()) // this context would keep everything that is still registered with it
		defer cancel()
		value := new([64]byte)
		kept := weak.Make(value)
		need.Get(p.lock.Contenders(context.WithValue(ctx, kept, value)))(t)
		runtime.GC()
		need.That(t, "the context of the question is still known to that of its caller", kept.Value() == nil)
	})
}

func TestNodeDataIsSmallAndValid(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s, zknode.WithLabel(strings.Repeat("<", 256))).acquire(t)
		data, stat, _ := s.Get(n.Path())
		need.AtMost(t, "bytes", len(data), 1024)
		need.That(t, "no valid JSON", json.Valid(data))
		need.Equal(t, "times that it was written", stat.Version, 0)
	})
}

// The function revoked waits until the bubble is idle, and reports whether the node n knows of a request for the lock.
func revoked(n *zknode.Node) bool {
	c := n.RevokeRequested()
	synctest.Wait()
	return closed(c)
}

// If the node contains a description by tierlock, Revoke adds the request to it. Any other content is replaced by the request that Curator
// uses, because other libraries know that form.
func TestARequestIsInTheFormThatTheOwnerKnows(t *testing.T) {
	const ours, theirs = "_c_00000000-0000-8000-8000-000000000000-lock-", "_c_00000000-0000-4000-8000-000000000000-lock-"
	for _, c := range []struct{ prefix, before, after string }{
		{ours, `{"later":[1],"pid":7,"v":1}`, `{"later":[1],"pid":7,"revoke":true,"v":1}`},
		{ours, `{"pid":7,"revoke":true,"v":1}`, `{"pid":7,"revoke":true,"v":1}`},
		{ours, `{"pid":7,"v":2}`, "__REVOKE__"},
		{ours, "what NodeData has put there", "__REVOKE__"},
		{theirs, `{"pid":7,"v":1}`, "__REVOKE__"},
	} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			conn := raw(t, s)
			put(t, conn, 0, "/locks", path)
			name := create(t, conn, path+"/"+c.prefix, c.before, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			operator := start(t, s)
			need.Get(operator.lock.Revoke(t.Context()))(t)
			need.Equal(t, "the new content instead of "+c.before, content(s, name), c.after)
			need.That(t, "not asked: "+c.after, need.Get(operator.lock.Contenders(t.Context()))(t)[0].Asked)
		})
	}
}

func TestOtherContentIsNoRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n, conn := start(t, s).acquire(t), raw(t, s)
		for _, data := range []string{"", "__REVOKE", "__REVOKE__\n", "revoke"} {
			conn.Set(n.Path(), []byte(data), -1)
			need.That(t, "taken for a request: "+data, !revoked(n))
		}
		conn.Set(n.Path(), []byte("__REVOKE__"), -1)
		need.That(t, "the holder does not know of the request after other writes", revoked(n))
	})
}

// The client reads a holder's node for requests only after the program has called RevokeRequested.
func TestRevocationCostsNothingUntilSomebodyAsks(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		tr := record(s)
		time.Sleep(timeout / 7)
		if ops := tr.take(); len(ops) > 1 { // one request may be a heartbeat
			t.Errorf("sent: %v", ops)
		}
		n.RevokeRequested()
		need.List(t, "sent for the first question", tr.take(), "getData")
		n.RevokeRequested()
		need.Empty(t, "sent for the second question", tr.take())
	})
}

// If the holder leaves between the read of the queue and the request, Revoke asks the next holder.
func TestRevokeAsksTheHolderOfTheMoment(t *testing.T) {
	for _, op := range []string{"getData", "setData"} { // the read of the holder's node, and the request
		bubble(t, func(t *testing.T, s *zktest.Server) {
			n := start(t, s).acquire(t)
			next := start(t, s).queue(t.Context())
			operator := start(t, s)
			strike(s, 1, is(op, zktest.Request), func(*zktest.Frame) zktest.Action {
				n.Release()
				return zktest.Pass
			})
			told, err := operator.lock.Revoke(t.Context())
			need.That(t, fmt.Sprintf("%v: got %+v, %v", op, told, err),
				err == nil && len(told) == 1 && path+"/"+told[0].Node == next.granted(t).Path() && revoked(next.node))
		})
	}
}

func TestRevokeWithoutPermissionSaysWhich(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		put(t, conn, 0, "/locks", path)
		create(t, conn, path+"/_c_x-lock-", "", zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermRead))
		wantErr(t, "Revoke", need.ErrOf(start(t, s).lock.Revoke(t.Context())), zk.ErrNoAuth)
	})
}
