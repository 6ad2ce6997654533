package faultproxy_test

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestRequestIsAppliedUnlessItIsCut(t *testing.T) {
	for dir, applied := range map[zktest.Direction]bool{zktest.Request: false, zktest.Reply: true} {
		t.Run(dir.String(), func(t *testing.T) {
			b := newBench(t)
			conn := b.connect()
			hit := b.cut("create", dir)
			created := create(conn, "/a")
			waittest.Ended(b, "the fault", hit)
			need.WantErr(t, "create", <-created, zk.ErrConnectionClosed)
			need.Equal(t, "applied", b.srv.Exists("/a"), applied)
		})
	}
}

func TestFramesKeepTheirOrder(t *testing.T) {
	c := dialRaw(newBench(t))
	c.shake()
	var all []byte
	for xid := range int32(5) {
		all = append(all, request(xid, wire.OpExists, "/")...)
		all = append(all, request(xid+100, wire.OpSync, "/")...)
	}
	c.write(all)
	for xid := range int32(5) {
		for _, want := range []int32{xid, xid + 100} {
			need.Equal(t, "it is the reply to", c.reply(), want)
		}
	}
}
