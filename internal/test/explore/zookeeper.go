package explore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/fault"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zklock/zktest"
)

const port = ":2181"

// In this package, a counter replaces the random part of node names. Runs are repeatable only if the names sort in the same order each
// time.
func init() {
	var n atomic.Uint64
	zkqueue.Random = func(id []byte) (int, error) {
		// The shift keeps the lowest digits free, because one of them identifies the owner of a node.
		binary.BigEndian.PutUint64(id, n.Add(1)<<20)
		return len(id), nil
	}
}

// An ensemble is a ZooKeeper in memory. Each request is executed in a step of its own. Each answer and each event arrives in a step of its
// own, in the order of its connection. Handshakes, pings and the closing of sessions take no step.
type ensemble struct {
	*zktest.Server
	world    *queues
	ledger   *ledger
	opened   atomic.Bool // all processes have a session
	conns    []func()    // functions that end the connections made by the client library
	operator *zk.Conn    // nil if there is none
	lasting  []trouble

	mu     sync.Mutex         // guards the fields below
	mended *process           // the process whose next connection takes no step
	starts *process           // the process whose frames all pass
	forged *process           // the process that gets the answer to its next connection that its session has expired
	newest map[*process]int64 // the newest session of each process
	ids    map[string]string  // random ids of nodes, and the names for them in schedules
	count  map[string]int     // how many such names there are, by process
	passed map[zktest.Frame]bool
	read   int64                         // the transaction after which queues was read
	queues map[string][]second.Contender // contenders by path
}

func newEnsemble(w *queues) *ensemble {
	e := &ensemble{
		Server: zktest.NewServer(zktest.Config{ContainerCheck: 24 * time.Hour, Tick: w.scope.Tick}),
		world:  w, ledger: newLedger(w.scope), newest: make(map[*process]int64),
		ids: make(map[string]string), count: make(map[string]int), passed: make(map[zktest.Frame]bool),
	}
	e.Intercept(e.hold)
	e.OnChange(e.judge)
	if w.scope.Remove || w.scope.seed.remove > 0 {
		e.operator = e.library(operator, e.DialContext)
	}
	return e
}

// The method dial connects a process to its own member of the ensemble. Each later connection is a step.
func (e *ensemble) dial(p *process) second.Tier {
	connect := func(ctx context.Context, network, address string) (net.Conn, error) {
		if e.opened.Load() && !e.isStarting(p) && !e.isMended(p) && e.world.post(p, "connect", both) == lose {
			return nil, errors.New("there is no way")
		}
		return e.DialContext(ctx, network, address)
	}
	servers := strings.Repeat(p.name+port+",", 8) + p.name + port // the client library pauses after the last address in the list
	options := []zknode.Option{zknode.WithSessionTimeout(lease), zknode.WithLabel(p.name), zknode.WithLogger(slog.New(slog.DiscardHandler))}
	var client *zknode.Client
	var err error
	if p.bridged {
		options = append(options, zknode.WithKazoo())
	}
	if e.world.scope.Attached {
		client, err = zknode.Attach(e.library(member(p.name+port), connect), options...)
	} else {
		client, err = zknode.Dial(context.Background(), servers, append(options, zknode.WithDialContext(connect))...)
	}
	if err != nil {
		e.world.Fatal(err)
	}
	for _, call := range append([]Call{Lock}, e.world.scope.all()...) {
		if at := call.mutex(); e.opened.Load() || strings.HasPrefix(at, permitsOf) || e.Exists(at) && !e.world.scope.grouped() {
			continue
		}
		// This first lock gets a slow answer. The client then is in the state in which the exploration begins.
		lock, _ := client.Lock(call.mutex())
		node, err := lock.Acquire(context.Background())
		if err != nil {
			e.world.Fatal(err)
		}
		node.Release()
	}
	return zknode.Tier(client)
}

// A member is the only server that a process knows.
type member string

// operator is the member to which the operator connects. The operator uses no locks.
const operator member = "operator" + port

func (m member) Init([]string) error                    { return nil }
func (m member) Len() int                               { return 1 }
func (m member) Next() (server string, retryStart bool) { return string(m), false }
func (m member) Connected()                             {}

// The method library makes a connection with the client library.
func (e *ensemble) library(to member, connect func(ctx context.Context, network, address string) (net.Conn, error)) *zk.Conn {
	dialer := func(network, address string, _ time.Duration) (net.Conn, error) {
		return connect(context.Background(), network, address)
	}
	conn, events, err := zk.Connect([]string{string(to)}, lease, zk.WithHostProvider(to), zk.WithDialer(dialer),
		zk.WithLogger(zkconn.Silent{}), zk.WithLogInfo(false))
	if err != nil {
		e.world.Fatal(err)
	}
	for event := range events {
		if event.State == zk.StateHasSession {
			break
		}
	}
	e.conns = append(e.conns, func() {
		conn.Close()
		for range events { // the library closes events at the very end
		}
	})
	return conn
}

// grouped reports whether requests may leave in groups. Requests wait for a group only if the server's answers have been slow.
func (s Scope) grouped() bool { return s.calls(Third) }

// distance is how long an answer takes before the first step. Requests leave in groups only if answers take that long.
const distance = 100 * time.Millisecond

func (e *ensemble) isMended(p *process) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	mended := e.mended == p
	if mended {
		e.mended = nil
	}
	return mended
}

func (e *ensemble) open() { e.opened.Store(true) }

func (e *ensemble) close() {
	for _, end := range e.conns {
		end()
	}
	e.Close()
}

// The method cut breaks the connection of a process, and blocks new connections until the caller calls heal.
func (e *ensemble) cut(p *process) (heal func()) {
	e.Break(p)
	return func() { e.mend(p) }
}

// mend makes the next connection of a process take no step.
func (e *ensemble) mend(p *process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mended = p
}

// The method write creates a node in a guarded write.
func (e *ensemble) write(x *span, hold *tier.Hold) {
	zklock.Multi(context.Background(), hold, &zk.CreateRequest{Path: x.register(), Acl: zk.WorldACL(zk.PermAll)})
}

// register returns the path to which a caller writes during one hold.
func (x *span) register() string {
	return fmt.Sprintf("/written by %s with %d turns left", x.name, x.turn)
}

// The method judge checks the guarded writes in a transaction.
func (e *ensemble) judge(v zktest.View, changes []zktest.Change) {
	e.ledger.changed(changes)
	w := e.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, change := range changes {
		i := slices.IndexFunc(w.spans, func(x *span) bool { return change.Op == "create" && change.Path == x.register() })
		if i < 0 {
			continue
		}
		queue, _ := zkqueue.Parse(v.Children(path))
		queue = slices.DeleteFunc(queue, func(c zkqueue.Contender) bool { return e.ledger.isHalved(path, e.token(v, c.Node)) })
		if x := w.spans[i]; len(queue) == 0 || e.token(v, queue[0].Node) != x.token {
			w.blameLocked("writes", "what %s wrote takes effect without the lock", x.name)
		} else {
			w.judgeWriteLocked(x)
		}
	}
}

func (e *ensemble) token(v zktest.View, node string) int64 {
	_, stat, _ := v.Get(path + "/" + node)
	return stat.Czxid
}

// The method hold makes a frame wait for its step.
func (e *ensemble) hold(f *zktest.Frame) zktest.Action {
	if f.Member == string(operator) {
		return zktest.Pass
	}
	p := e.world.named(strings.TrimSuffix(f.Member, port))
	if f.Dir == zktest.Request {
		e.ledger.judgeRequest(f)
		if f.Op == "connect" && f.Session != 0 && e.isForged(p) {
			return zktest.Error(zk.ErrSessionExpired)
		}
	}
	switch open := e.opened.Load(); {
	case e.passes(p, f), e.isStarting(p), !open && !e.world.scope.grouped():
		return zktest.Pass
	case !open:
		return zktest.Delay(distance)
	}
	what, to := f.Op+" "+e.place(p, f.Path), toStore
	if f.Dir == zktest.Reply {
		to = inOrder
		if f.Op != "event" {
			what = "answer to " + what
		}
	}
	switch e.world.post(p, what, to) {
	case lose:
		return zktest.Cut
	case drop:
		return zktest.Drop
	case throttle:
		return zktest.Throttled
	case between:
		return fault.Refusal(-4)
	}
	return zktest.Pass
}

// The method begin lets all frames of a process pass until its start is done.
func (e *ensemble) begin(p *process, done bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.starts = p; done {
		e.starts = nil
	}
}

func (e *ensemble) isStarting(p *process) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.starts == p
}

// isForged reports whether the next answer about the session of a process has to be forged. It returns true only once for each fault.
func (e *ensemble) isForged(p *process) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	forged := e.forged == p
	if forged {
		e.forged = nil
	}
	return forged
}

// The method passes reports whether a frame passes without a step, because its order does not matter. An example is a request to delete a
// node that has already ended with its session. Such a request would come at a random point of the schedule, because its process first
// waits for a random time. A process that queues again waits, too.
func (e *ensemble) passes(p *process, f *zktest.Frame) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	same := *f
	same.Dir, same.Nth = 0, 0
	switch f.Op {
	case "connect":
		if f.Dir == zktest.Reply && f.Session != e.newest[p] {
			e.newest[p] = f.Session
			e.ledger.joined(f.Session, p)
			p.sessions.Add(1)
		}
		return true
	case "ping", "closeSession":
		return true
	case "delete":
		if f.Dir == zktest.Request && !e.Exists(f.Path) {
			e.passed[same] = true
		}
	}
	return e.passed[same]
}

// The method place returns the name of a path in schedules. A node is named after the process that first mentions it, and after its number
// among that process's nodes.
func (e *ensemble) place(p *process, path string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, name, ok := strings.Cut(path, "_c_")
	if !ok {
		return path
	}
	id := name[:len("01234567-89ab-4def-8123-456789abcdef")]
	if e.ids[id] == "" {
		e.count[p.name]++
		e.ids[id] = fmt.Sprintf("%s.%d", p.name[1:], e.count[p.name])
	}
	return e.ids[id]
}

// A znode is a contender or a permit at a path.
type znode struct {
	zkqueue.Contender
	path    string
	permits int // 1 for a permit, 0 for a contender
}

// The method second returns the path of the contender's second znode, which is for kazoo.
func (n znode) second() string { return strings.TrimSuffix(n.path, n.Node) + n.Pair }

// The method znodes returns the znodes at a path, permits first.
func (e *ensemble) znodes(path string) (all []znode) {
	path, permits := strings.CutPrefix(path, permitsOf)
	if permits {
		leases := e.Children(path + "/leases")
		slices.SortFunc(leases, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
		for _, name := range leases {
			all = e.with(all, path+"/leases", zkqueue.Contender{Node: name}, 1)
		}
		path += "/locks"
	}
	queue, _ := zkqueue.Parse(e.Children(path))
	for _, c := range queue {
		all = e.with(all, path, c, 0)
	}
	return all
}

// The method with appends a znode to a list, unless the znode was deleted in the meantime.
func (e *ensemble) with(list []znode, path string, c zkqueue.Contender, permits int) []znode {
	data, stat, ok := e.Get(path + "/" + c.Node)
	if !ok {
		return list
	}
	c.Take(data, &stat)
	return append(list, znode{c, path + "/" + c.Node, permits})
}

// Queue returns the contenders at a path.
func (e *ensemble) Queue(path string) []second.Contender {
	e.mu.Lock()
	if zxid := e.Zxid(); zxid != e.read {
		e.read, e.queues = zxid, make(map[string][]second.Contender)
	}
	all, known := e.queues[path]
	read := e.read
	e.mu.Unlock()
	if known {
		return all
	}
	for _, n := range e.znodes(path) {
		q := n.ForGate()
		q.ID = e.place(e.world.named(n.Label), n.Node)
		if q.Permits = n.permits; strings.HasPrefix(path, permitsOf) {
			q.Of = e.world.scope.permits()
		}
		all = append(all, q)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.read == read {
		e.queues[path] = all
	}
	return all
}

// Remove deletes the node at a place in the queue, as an operator would.
func (e *ensemble) Remove(path string, i int) {
	n := e.znodes(path)[i]
	go e.operator.Delete(n.path, -1)
}

// Expire ends the session of the process at a place in the queue. It breaks the connection first, and the process therefore learns of the
// end at once. Without the break, the lease would have to end first.
func (e *ensemble) Expire(path string, i int) {
	n := e.znodes(path)[i]
	p := e.world.named(n.Label)
	e.Break(p)
	synctest.Wait()
	e.ledger.ends(n.Session)
	e.ledger.disturb()
	e.Server.Expire(n.Session)
	e.settle(p, e.world.step, pass) // lets the process connect again
	// An attached holder has no lease timer here, and therefore has to check its clock.
	if e.world.scope.Attached {
		synctest.Wait()
		e.world.judgeLook(p)
		synctest.Wait()
	}
}

// Break breaks the connection of a process. All messages under way on the connection are lost.
func (e *ensemble) Break(p *process) {
	e.world.mu.Lock()
	p.missed = true
	e.world.mu.Unlock()
	e.ledger.disturb()
	e.Member(p.name + port).Cut()
	e.settle(p, e.world.step-1, lose)
}

// The method settle decides what happens to the messages of a process that were sent up to and including the given step.
func (e *ensemble) settle(p *process, step int, v verdict) {
	for _, m := range e.world.ordered() {
		if m.process == p && m.since <= step {
			e.world.settle(m, v)
		}
	}
}
