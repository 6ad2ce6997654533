package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
)

// However many goroutines read, a process is one znode.
func TestReadersOfAProcessAreOneNode(t *testing.T) {
	const processes, readers = 2, 1000
	server := zkservertest.Start(t, zkserver.Config{}).Addr()
	o, err := ZooKeeper.Observe(t.Context(), Place{Servers: []string{server}, Lock: "rw", Paths: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	type acquired struct {
		hold Hold
		err  error
	}
	got := make(chan acquired)
	for range processes {
		locker, err := ZooKeeper.Locks["rw"].Dial(ctx, Options{Servers: []string{server}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locker.Close() })
		acquire, err := locker.Contender(o.Paths()[0])
		if err != nil {
			t.Fatal(err)
		}
		for range readers {
			go func() {
				h, err := acquire(ctx, 1)
				got <- acquired{h, err}
			}()
		}
	}
	var holds []Hold
	for range processes * readers {
		a := <-got
		if a.err != nil {
			t.Fatal(a.err)
		}
		holds = append(holds, a.hold)
	}
	if n, err := o.Orphans(); n != processes || err != nil {
		t.Errorf("while all read: got %d nodes at the lock, %v, want one for each process", n, err)
	}
	if n := ephemerals(t, server); n != processes {
		t.Errorf("the server has %d ephemeral nodes, want one for each process", n)
	}
	for _, h := range holds {
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if n := ephemerals(t, server); n != 0 {
		t.Errorf("when all have released: got %d ephemeral nodes", n)
	}
}

func ephemerals(t *testing.T, server string) (n int) {
	t.Helper()
	answer, err := zkserver.Ask(server, "mntr")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(answer, "zk_ephemerals_count\t")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatalf("%v in %q", err, answer)
	}
	return n
}
