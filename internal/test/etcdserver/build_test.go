package etcdserver

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
)

func TestTakenPortIsSwappedForAnother(t *testing.T) {
	etcd, err := find()
	childtest.Check(t, err)
	var taken net.Listener
	e, err := child.Start(t.Context(), func() (*child.Ensemble, error) {
		e, err := build(etcd, 1, Config{TickTime: 50 * time.Millisecond, NoSync: true})
		if err == nil && taken == nil {
			taken, err = net.Listen("tcp", e.Members[0].Addr())
		}
		return e, err
	})
	if taken != nil {
		defer taken.Close()
	}
	childtest.Use(t, e, err)
	need.That(t, "the server is on an address that another process has", e.Members[0].Addr() != taken.Addr().String())
}

func TestTheScriptBuildsWhatIsLookedFor(t *testing.T) {
	module := need.Get(os.ReadFile("etcd/go.mod"))(t)
	need.Has(t, "etcd/go.mod", string(module), "\nrequire go.etcd.io/etcd/server/v3 "+built+"\n")
}
