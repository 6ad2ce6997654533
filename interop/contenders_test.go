package interop_test

import (
	"net"
	"os"
	"slices"
	"testing"

	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/zklock"
)

func TestContendersListsEveryKind(t *testing.T) {
	t.Parallel()
	want := []struct {
		driver string
		kind   zkqueue.Kind
		data   string // "" for Curator's, which is the address of its host
	}{
		{"zk", zkqueue.KindZKLock, "interop"},
		{"curator", zkqueue.KindCurator, ""},
		{"kazoo", zkqueue.KindKazoo, "interop"},
		{"kazoo-read", zkqueue.KindKazooRead, "interop"},
		{"curator-write", zkqueue.KindWrite, ""},
		{"curator-read", zkqueue.KindRead, ""},
	}
	e := newEnsemble(t)
	var kinds []string
	for _, w := range want {
		kinds = append(kinds, w.driver)
	}
	drivers := launch(t, e, sessionTimeout, kinds...)
	for i, d := range drivers {
		d.order(t, "acquire")
		e.awaitChildren(t, i+1)
	}
	mu := e.tier(t, zklock.WithLabel("interop"))
	ours := start(soon(t), mu)
	e.awaitChildren(t, len(want)+1)

	queue := e.queue(t)
	if len(queue) != len(want)+1 {
		t.Fatalf("got %d contenders, want %d: %+v", len(queue), len(want)+1, queue)
	}
	for i, w := range want {
		c := queue[i]
		if c.Kind != w.kind || c.Session != drivers[i].session {
			t.Errorf("contender %d: got a %q of session %x, want %s's %q of session %x",
				i, c.Kind, c.Session, w.driver, w.kind, drivers[i].session)
		}
		switch {
		case w.data != "" && string(c.Data) != w.data, w.data == "" && net.ParseIP(string(c.Data)) == nil:
			t.Errorf("contender %d: got data %q of %s, want %q", i, c.Data, w.driver, w.data)
		case c.PID != 0 || c.Host != "" || c.Label != "":
			t.Errorf("contender %d: %s says nothing of its process: got %+v", i, w.driver, c)
		}
	}
	last := queue[len(want)]
	if last.Kind != zkqueue.KindTierlock || last.Session == 0 || last.PID != os.Getpid() || last.Label != "interop" {
		t.Errorf("contender %d: got %+v, want this process", len(want), last)
	}
	if !slices.IsSortedFunc(queue, func(a, b zkqueue.Contender) int { return int(a.Sequence - b.Sequence) }) {
		t.Errorf("not in the order of the queue: %+v", queue)
	}

	// Those that see each other are granted in the order of the list.
	for _, d := range drivers {
		d.answer(t)
		d.release(t)
	}
	release(t, ours.granted(t))
	e.awaitChildren(t, 0)
}

// queue returns the queue with all that ZooKeeper tells.
func (e *ensemble) queue(t *testing.T) []zkqueue.Contender {
	t.Helper()
	client, err := zklock.Dial(soon(t), e.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	ctx := soon(t)
	queue, err := zkqueue.Ask(ctx, client, "contenders of", e.path, func(p zkqueue.Path) ([]zkqueue.Contender, error) { return p.Contenders(ctx) })
	if err != nil {
		t.Fatal(err)
	}
	return queue
}
