package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
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

var write = request{"write under the lock", zktest.OpMulti, zktest.OpCheck}

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
	{name: refused, at: zktest.Request, do: zktest.Error(zktest.CodeThrottled)},
}

// A trial is one case. What its callers see goes into its log; what must be so wherever it is played is checked.
type trial struct {
	*testing.T
	play    func(*trial)
	request request
	mishap  mishap[*line]

	backend  *backend
	operator *zk.Conn
	path     string // of the lock
	data     string // of a node that is written under it
	line     *line  // the one whose request meets the mishap
	fault    *fault.Armed
	beaten   *fault.Armed // hit by the first heartbeat that is answered after that
	log      []string
	token    int64 // of the newest grant
}

// on plays the case and returns its log.
func (tr trial) on(t *testing.T, b *backend) []string {
	t.Helper()
	tr.T, tr.backend = t, b
	tr.path = "/" + strings.NewReplacer("/", "-", " ", "-", ",", "").Replace(t.Name())
	tr.data = tr.path + "-data"
	tr.operator = b.operator(t)
	for _, path := range []string{tr.path, tr.data} {
		if _, err := tr.operator.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			tr.Fatal(err)
		}
	}
	tr.play(&tr)
	tr.await("the mishap", func() bool { return closed(tr.fault.Hit) })
	tr.line.ends.Wait()
	tr.await("nothing is left", func() bool { return len(tr.queue()) == 0 })
	probe, err := tr.operator.Create(tr.path+"/", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
	tr.note("nodes before %s, %s", strings.TrimPrefix(probe, tr.path), sight(err))
	return tr.log
}

func (tr *trial) queue() []string {
	tr.Helper()
	children, _, err := tr.operator.Children(tr.path)
	if err != nil {
		tr.Fatal(err)
	}
	return children
}

func (tr *trial) note(format string, args ...any) {
	tr.log = append(tr.log, fmt.Sprintf(format, args...))
}

// sight is as much of an error as a caller tells apart.
func sight(err error) string {
	if err == nil {
		return "ok"
	}
	for _, known := range []error{context.Canceled, tier.ErrLost, tier.ErrReleased, zk.ErrConnectionClosed} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()[strings.LastIndex(err.Error(), ": ")+1:] // before it come names of nodes, which are never the same
}

func (tr *trial) await(what string, holds func() bool) {
	tr.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tr.Fatalf("not within %v: %s; so far %v", patience, what, tr.log)
		}
	}
}

// A player is a process and its line. Strict: each release gives the node up.
type player struct {
	*line
	name  string
	locks *tier.Registry
}

func (tr *trial) join(name string) *player {
	tr.Helper()
	l := tr.backend.newLine()
	ctx, cancel := context.WithTimeout(tr.Context(), patience)
	defer cancel()
	servers := slices.Repeat([]string{l.addr}, 9) // the library pauses for a second at the end of its list
	client, err := zklock.Dial(ctx, strings.Join(servers, ","), zklock.WithDialContext(l.dial), zklock.WithSessionTimeout(sessionTimeout))
	if err != nil {
		tr.Fatal(err)
	}
	locks, err := tier.New(client.Tier(), tier.WithHandOff(0))
	if err != nil {
		tr.Fatal(err)
	}
	tr.Cleanup(func() { locks.Close() })
	return &player{l, name, locks}
}

// arm lets the player's next request of the kind, about such a path, meet the mishap.
func (tr *trial) arm(p *player, about func(path string) bool) {
	f := tr.mishap.fault(tr.request, p.line)
	f.About = func(f *zktest.Frame) bool { return tr.request.is(f) && (about == nil || about(f.Path)) }
	tr.line, tr.fault = p.line, p.faults.Arm(f)
	tr.beaten = p.faults.Arm(fault.Fault{Op: zktest.OpMulti, At: zktest.Reply, About: func(*zktest.Frame) bool {
		return closed(tr.fault.Hit)
	}})
	tr.Cleanup(p.ends.Wait) // also when the case has failed
	if tr.request == connect {
		p.Cut()
		<-tr.fault.Hit
	}
}

// A bid is one call of Acquire.
type bid struct {
	by     string
	cancel context.CancelFunc
	done   chan struct{}
	hold   *tier.Hold // valid when done is closed, like the next one
	err    error
}

func (tr *trial) bid(p *player) *bid {
	ctx, cancel := context.WithCancel(tr.Context())
	tr.Cleanup(cancel)
	b := &bid{by: p.name, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.hold, b.err = p.locks.Mutex(tr.path).Acquire(ctx)
	}()
	return b
}

// queued is a bid whose node is the second in the queue.
func (tr *trial) queued(p *player) *bid {
	tr.Helper()
	b := tr.bid(p)
	tr.await(p.name+" to queue", func() bool { return len(tr.queue()) == 2 })
	return b
}

// settle waits for the result of a bid and checks that tokens grow.
func (tr *trial) settle(b *bid) *bid {
	tr.Helper()
	tr.await(b.by+"'s result", func() bool { return closed(b.done) })
	tr.note("%s acquires: %s", b.by, sight(b.err))
	if b.err == nil {
		if b.hold.Token() <= tr.token {
			tr.Errorf("token %d after %d", b.hold.Token(), tr.token)
		}
		tr.token = b.hold.Token()
	}
	return b
}

func (tr *trial) release(b *bid) {
	if b.hold != nil {
		tr.note("%s releases: %s", b.by, sight(b.hold.Release()))
	}
}

// granted is settle for a bid that must not fail.
func (tr *trial) granted(b *bid) *bid {
	tr.Helper()
	if tr.settle(b); b.err != nil {
		tr.Fatalf("%s: %v", b.by, b.err)
	}
	return b
}

// giveUp waits for the mishap, and cancels what it met if that is not to wait for a late answer.
func (tr *trial) giveUp(b *bid) {
	tr.Helper()
	tr.await("the mishap", func() bool { return closed(tr.fault.Hit) })
	if tr.mishap.late {
		b.cancel()
	}
}

// apart checks that nobody else has what the holder still holds.
func (tr *trial) apart(holder, other *bid) {
	tr.Helper()
	if closed(other.done) && other.err == nil && holder.hold.Err() == nil {
		tr.Fatalf("%s holds what %s holds", other.by, holder.by)
	}
}

func (tr *trial) idle() {
	p, q := tr.join("p"), tr.join("q")
	tr.arm(p, nil)
	b := tr.bid(p)
	tr.giveUp(b)
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
			return tr.request.op != zktest.OpGetData || (path == ahead) == (tr.request == readPred)
		})
		b = tr.bid(p)
	}
	tr.giveUp(b)
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
	tr.giveUp(&bid{cancel: cancel})
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
