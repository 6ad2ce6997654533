package faultproxy_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestFateOfARequestDecidesWhetherItIsApplied(t *testing.T) {
	tests := map[string]struct {
		at      zktest.Direction
		do      zktest.Action
		applied bool
		err     error
	}{
		"cut at the request": {zktest.Request, zktest.Cut, false, zk.ErrConnectionClosed},
		"cut at the reply":   {zktest.Reply, zktest.Cut, true, zk.ErrConnectionClosed},
		"dropped request":    {zktest.Request, zktest.Drop, false, zk.ErrConnectionClosed},
		"dropped reply":      {zktest.Reply, zktest.Drop, true, zk.ErrConnectionClosed},
		"refused":            {zktest.Request, zktest.Error(zk.ErrNoAuth), false, zk.ErrNoAuth},
		"delayed request":    {zktest.Request, zktest.Delay(10 * time.Millisecond), true, nil},
		"delayed reply":      {zktest.Reply, zktest.Delay(10 * time.Millisecond), true, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			conn := b.connect()
			hit := b.arm("create", test.at, test.do)
			begun := time.Now()
			created := create(conn, "/a")
			waittest.Ended(b, "the fault", hit)
			if test.do == zktest.Drop { // and nothing else is
				need.OK(t, <-create(conn, "/b"))
				b.proxy.Cut()
			}
			need.WantErr(t, "create", <-created, test.err)
			need.That(t, "not delayed", test.err != nil || time.Since(begun) >= 10*time.Millisecond)
			need.Equal(t, "applied", b.srv.Exists("/a"), test.applied)
		})
	}
}

func TestForgedExpiryLeavesTheSessionAlive(t *testing.T) {
	b := newBench(t)
	conn := b.connect()
	old := conn.SessionID()
	need.OK(t, <-create(conn, "/a"))
	b.arm("connect", zktest.Request, zktest.Error(zk.ErrSessionExpired))
	b.proxy.Cut()
	waittest.Eventually(t, "a new session", func() bool { return conn.State() == zk.StateHasSession && conn.SessionID() != old })
	if sessions := b.srv.Sessions(); len(sessions) != 2 || sessions[0].ID != old || len(sessions[0].Ephemerals) != 1 {
		t.Errorf("sessions: got %+v, want the old one with its node, and a new one", sessions)
	}
}

func TestDroppedHandshakeIsNeverAnswered(t *testing.T) {
	b := newBench(t)
	hit := b.arm("connect", zktest.Request, zktest.Drop)
	c := dialRaw(b)
	c.write(handshake)
	waittest.Ended(b, "the fault", hit)
	c.write(request(1, wire.OpSync, "/"))
	c.silent()
	need.Empty(t, "sessions", b.srv.Sessions())
}

func TestFramesKeepTheirOrder(t *testing.T) {
	tests := map[string]struct {
		at zktest.Direction
		do zktest.Action
	}{
		"refused":         {zktest.Request, zktest.Throttled},
		"delayed request": {zktest.Request, zktest.Delay(20 * time.Millisecond)},
		"delayed reply":   {zktest.Reply, zktest.Delay(20 * time.Millisecond)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			c := dialRaw(b)
			c.shake()
			b.arm("sync", test.at, test.do)
			var all []byte
			for xid := range int32(5) {
				all = append(all, request(xid, wire.OpExists, "/")...)
				all = append(all, request(xid+100, wire.OpSync, "/")...)
			}
			c.write(all)
			for xid := range int32(5) {
				for _, want := range []int32{xid, xid + 100} {
					got := c.reply()
					need.Equal(t, "it is the reply to", got.xid, want)
					if first := (reply{xid: 100, code: wire.CodeThrottled}); want == first.xid && (got == first) != (test.do == zktest.Throttled) {
						t.Errorf("the reply is %+v, want a refusal to be %+v, with no body", got, first)
					}
				}
			}
		})
	}
}
