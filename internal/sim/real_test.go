package sim

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/zktest"
)

// TestServerBehavesLikeTheModel plays each case twice, on the model in virtual time and on a real server behind fault
// proxies in real time, and compares what the callers saw. A case that differs is a bug in the model, or a surprise.
func TestServerBehavesLikeTheModel(t *testing.T) {
	running := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, running) })
	server := zkservertest.Start(t, zkserver.Config{NoSync: true})
	turns := make(chan struct{}, 24) // cases at a time: mostly they wait
	var cases sync.WaitGroup
	defer cases.Wait()
	for _, m := range lineMishaps {
		for _, situation := range situations {
			for _, request := range situation.requests {
				if situation.name == "releasing" && request == connect && m.name == refused {
					continue // the news of the expiry and the release run a race
				}
				tr := trial{play: situation.play, request: request, mishap: m}
				turns <- struct{}{}
				cases.Go(func() {
					defer func() { <-turns }()
					t.Run(situation.name+"/"+request.name+"/"+m.name, func(t *testing.T) { tr.compare(t, server.Addr()) })
				})
			}
		}
	}
}

func (tr trial) compare(t *testing.T, server string) {
	var model []string
	synctest.Test(t, func(t *testing.T) {
		model = tr.on(t, modelBackend(t, zktest.Config{MinSessionTimeout: time.Second}))
	})
	real := tr.on(t, serverBackend(t, server))
	if !slices.Equal(real, model) {
		t.Errorf("on the server:\n  %s\non the model:\n  %s", strings.Join(real, "\n  "), strings.Join(model, "\n  "))
	}
}

const patience = 5 * sessionTimeout

var write = request{"write under the lock", "multi", "check"}

var situations = []struct {
	name     string
	requests []request
	play     func(*trial)
}{
	{"idle", []request{create, list, readOwn, connect}, (*trial).idle},
	{"waiting", []request{create, list, readOwn, readPred, remove, connect}, (*trial).waiting},
	{"holding", []request{beat, write, connect}, (*trial).holding},
	{"releasing", []request{remove, requeue, connect}, (*trial).releasing},
}

// lineMishaps can happen to a request on a line. The longest come first, so that nobody waits for them alone.
var lineMishaps = []mishap[*line]{
	{
		name: "cut off for longer than the session", at: zktest.Request, do: zktest.Cut,
		before: func(l *line) { l.Refuse(); l.later(sessionTimeout+time.Second, l.Accept) },
	},
	{ // A stream loses nothing in the middle. A busy machine needs most of the lease that a lost heartbeat leaves, half the timeout.
		name: "dropped then cut", at: zktest.Request, do: zktest.Drop,
		before: func(l *line) { l.mute(); l.later(sessionTimeout/10, func() { l.Cut(); l.unmute() }) },
	},
	{name: "cut at the request", at: zktest.Request, do: zktest.Cut},
	{name: "cut at the reply", at: zktest.Reply, do: zktest.Cut},
	{name: "answered late", at: zktest.Reply, do: zktest.Delay(sessionTimeout / 4), late: true}, // zklock waits less for a handshake
	{name: refused, at: zktest.Request, do: zktest.Throttled},
}

func (tr *trial) idle() {
	p, q := tr.join("p"), tr.join("q")
	tr.arm(p, nil)
	b := tr.bid(p)
	tr.giveUp(b.cancel)
	tr.release(tr.settle(b))
	tr.release(tr.granted(tr.bid(q)))
}

func (tr *trial) waiting() {
	p, q := tr.join("p"), tr.join("q")
	holder := tr.granted(tr.bid(q))
	ahead := tr.path + "/" + tr.queue()[0]
	var b *bid
	switch tr.request {
	case remove, connect:
		b = tr.queued(p)
		tr.arm(p, nil)
		if tr.request == remove {
			b.cancel()
		}
	default:
		tr.arm(p, func(path string) bool {
			return tr.request.op != "getData" || (path == ahead) == (tr.request == readPred)
		})
		b = tr.bid(p)
	}
	tr.giveUp(b.cancel)
	if tr.request == remove || tr.mishap.late {
		tr.settle(b)
		tr.release(holder)
	} else {
		tr.await("p to queue", func() bool { tr.apart(holder, b); return len(tr.queue()) == 2 })
		tr.release(holder)
		tr.release(tr.granted(b))
	}
	tr.release(tr.granted(tr.bid(q)))
}

func (tr *trial) holding() {
	p, q := tr.join("p"), tr.join("q")
	b := tr.granted(tr.bid(p))
	next := tr.queued(q)
	tr.arm(p, nil)
	if tr.request == write {
		tr.write(b)
	}
	tr.await("a heartbeat, or the loss", func() bool {
		tr.apart(b, next)
		return closed(tr.beaten.Hit) || closed(b.hold.Lost())
	})
	tr.note("p holds: %s", sight(b.hold.Err()))
	tr.release(b)
	tr.release(tr.granted(next))
}

// write writes under a lock, and notes what the writer is told and what became of it.
func (tr *trial) write(b *bid) {
	tr.Helper()
	ctx, cancel := context.WithCancel(tr.Context())
	defer cancel()
	told := make(chan error, 1)
	go func() {
		_, err := tierlock.Multi(ctx, b.hold, &zk.SetDataRequest{Path: tr.data, Version: -1})
		told <- err
	}()
	tr.giveUp(cancel)
	tr.note("p writes: %s", sight(<-told))
	_, stat, err := tr.operator.Get(tr.data)
	if err != nil {
		tr.Fatal(err)
	}
	tr.note("version %d", stat.Version)
}

func (tr *trial) releasing() {
	p, q := tr.join("p"), tr.join("q")
	b := tr.granted(tr.bid(p))
	var again *bid
	if tr.request == requeue {
		again = tr.bid(p) // is at the gate long before q, over the network, is in the queue
	}
	next := tr.queued(q)
	tr.arm(p, nil)
	tr.release(b)
	tr.release(tr.granted(next))
	if again != nil {
		tr.release(tr.granted(again))
	}
}
