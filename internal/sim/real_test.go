package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	"github.com/tierlock/tierlock/internal/faultproxy"
	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/tier"
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

// A party is a process and its line. Strict: each release gives the node up.
type party struct {
	*line
	process
	name string
}

func (tr *trial) join(name string) *party {
	tr.Helper()
	p := &party{line: tr.backend.newLine(), name: name}
	ctx, cancel := context.WithTimeout(tr.Context(), patience)
	defer cancel()
	servers := slices.Repeat([]string{p.addr}, 9) // the library pauses for a second at the end of its list
	if err := p.start(ctx, way{servers, p.dial}, nil, strict); err != nil {
		tr.Fatal(err)
	}
	tr.Cleanup(func() { p.locks.Close() })
	return p
}

// arm lets the party's next request of the kind, about such a path, meet the mishap.
func (tr *trial) arm(p *party, about func(path string) bool) {
	f := tr.mishap.fault(tr.request, p.line)
	f.About = func(f *zktest.Frame) bool { return tr.request.is(f) && (about == nil || about(f.Path)) }
	tr.line, tr.fault = p.line, p.faults.Arm(f)
	tr.beaten = p.faults.Arm(fault.Fault{Op: "multi", At: zktest.Reply, About: func(*zktest.Frame) bool {
		return closed(tr.fault.Hit)
	}})
	tr.Cleanup(p.ends.Wait) // also when the case has failed
	if tr.request == connect {
		p.Cut()
		<-tr.fault.Hit
	}
}

// A bid is an acquisition that a party makes.
type bid struct {
	acquisition
	by string
}

func (tr *trial) bid(p *party) *bid {
	b := &bid{by: p.name}
	b.begin(tr.Context(), p.locks.Mutex(tr.path), func() {})
	tr.Cleanup(b.cancel)
	return b
}

// queued is a bid whose node is the second in the queue.
func (tr *trial) queued(p *party) *bid {
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
func (tr *trial) giveUp(cancel context.CancelFunc) {
	tr.Helper()
	tr.await("the mishap", func() bool { return closed(tr.fault.Hit) })
	if tr.mishap.late {
		cancel()
	}
}

// apart checks that nobody else has what the holder still holds.
func (tr *trial) apart(holder, other *bid) {
	tr.Helper()
	if closed(other.done) && other.err == nil && holder.hold.Err() == nil {
		tr.Fatalf("%s holds what %s holds", other.by, holder.by)
	}
}

// A backend is a server and a line of its own for each process. The model and a real server behind proxies are two on
// which one test can be played.
type backend struct {
	addr    string // past all faults
	dial    zk.Dialer
	newLine func() *line
}

// A line is what lies between one process and the server.
type line struct {
	cutter // Cut, Refuse, Accept

	addr   string
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	mute   func() // in both directions
	unmute func()
	faults fault.Set
	ends   sync.WaitGroup // of what happens to it
}

// A cutter is a *zktest.Member or a *faultproxy.Proxy.
type cutter interface {
	Cut()
	Refuse()
	Accept()
}

// later ends something after d.
func (l *line) later(d time.Duration, end func()) {
	l.ends.Go(func() {
		time.Sleep(d)
		end()
	})
}

// modelBackend is a server of its own in this process, until the end of the test. It fits into a synctest bubble.
func modelBackend(t *testing.T, cfg zktest.Config) *backend {
	srv := zktest.Start(t, cfg)
	var lines sync.Map // by address
	srv.Intercept(func(f *zktest.Frame) zktest.Action {
		if l, ok := lines.Load(f.Member); ok {
			return l.(*line).faults.Intercept(f)
		}
		return zktest.Pass
	})
	n := 0
	return &backend{addr: "127.0.0.1:2181", dial: srv.DialTimeout, newLine: func() *line {
		n++
		m := srv.Member(fmt.Sprintf("127.0.1.%d:2181", n))
		l := &line{
			cutter: m, addr: fmt.Sprintf("127.0.1.%d:2181", n), dial: srv.DialContext, mute: m.Freeze, unmute: m.Unfreeze,
		}
		lines.Store(l.addr, l)
		return l
	}}
}

// serverBackend is the server at addr, with proxies in front of it until the end of the test.
func serverBackend(t *testing.T, addr string) *backend {
	return &backend{addr: addr, dial: net.DialTimeout, newLine: func() *line {
		p, err := faultproxy.Start(addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		l := &line{
			cutter: p, addr: p.Addr(), dial: new(net.Dialer).DialContext,
			mute:   func() { p.Mute(zktest.Request); p.Mute(zktest.Reply) },
			unmute: func() { p.Unmute(zktest.Request); p.Unmute(zktest.Reply) },
		}
		p.Intercept(l.faults.Intercept)
		return l
	}}
}

// operator returns a connection past all faults, until the end of the test.
func (b *backend) operator(t *testing.T) *zk.Conn {
	t.Helper()
	return zkconn.Start(t, []string{b.addr, b.addr}, 10*time.Second, b.dial)
}
