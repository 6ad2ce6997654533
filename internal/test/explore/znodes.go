package explore

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A ledger records what the server has done with the znodes of locks. Only the world of a ZooKeeper has a ledger.
type ledger struct {
	scope Scope

	mu       sync.Mutex // guards the fields below; the server's lock may be held at the time, so no method of the server is called under mu
	wrong    string     // the first violation; "" if there was none
	sessions map[int64]*process
	ended    map[int64]bool // sessions that a fault ended early
	named    map[string]*lockNode
	tokens   map[tokenAt]*lockNode
	queues   map[string][]*lockNode // existing nodes by path, in order of creation
	permits  map[string]*process    // permits that are taken: their processes, by id
	takers   map[string]*process    // the processes of all permits that were ever taken, by id
	unused   []*lockNode            // deleted nodes that have served no caller
	step     int                    // the step that is being taken
	calm     time.Time              // from then on, the latest fault can have no effect any more
}

func newLedger(s Scope) *ledger {
	return &ledger{
		scope: s, sessions: make(map[int64]*process), ended: make(map[int64]bool), named: make(map[string]*lockNode),
		tokens: make(map[tokenAt]*lockNode), queues: make(map[string][]*lockNode), permits: make(map[string]*process),
		takers: make(map[string]*process),
	}
}

// A lockNode is the node of a contender. It has one znode, or two if kazoo has to see it.
type lockNode struct {
	path    string // path of its first znode
	lock    string
	mode    second.Mode
	shared  bool   // it was the node of a writer, and is now the node of a reader
	second  string // path of the znode for kazoo
	halved  bool   // the second znode is deleted
	token   int64
	owner   *process
	session int64
	step    int // the step in which it was created
	served  bool
	gone    bool
	revoked time.Time // when it was deleted by a fault against which no lease protects; zero if it was not
}

// A tokenAt is the token of a node, with the path of its lock. The path is needed because nodes of different locks have the same token if
// one transaction created them.
type tokenAt struct {
	lock  string
	token int64
}

func (n *lockNode) reads() bool { return n.shared || n.mode == second.Reading }

// A znodeName is the parsed name of a znode of a lock.
type znodeName struct {
	lock   string // path of the lock
	id     string // the id of the node; all its znodes contain it, also those that replace others
	marker string
	number int // the sequence number from the server
}

var znodePath = regexp.MustCompile(`^(.*)/(_c_[0-9a-f-]{36})-(lock-|__WRIT__|__READ__|__lock__|__rlock__|lease-)(\d{10})$`)

// parseZnode parses the path of a lock's znode. It returns false for every other path.
func parseZnode(path string) (z znodeName, ok bool) {
	m := znodePath.FindStringSubmatch(path)
	if m == nil {
		return z, false
	}
	number, _ := strconv.Atoi(m[4]) // the pattern allows only digits
	return znodeName{lock: m[1], id: m[2], marker: m[3], number: number}, true
}

// permitMarker is the marker in the name of a permit's node. Such a node is in no queue.
const permitMarker = "lease-"

// The map modes returns the mode of a node for the marker of its first znode.
var modes = map[string]second.Mode{"lock-": second.Exclusive, "__WRIT__": second.Writing, "__READ__": second.Reading}

// forKazoo reports whether z names a second znode. kazoo sees only second znodes, and waits as long as they exist.
func (z znodeName) forKazoo() bool { return z.marker == "__lock__" || z.marker == "__rlock__" }

// The method pairs reports whether second is the second znode that belongs to z.
func (z znodeName) pairs(second znodeName) bool {
	return second.id == z.id && second.number == z.number+1 && (second.marker == "__rlock__") == (z.marker == "__READ__")
}

// The pattern id matches the random part in the name of a znode.
var id = regexp.MustCompile(`_c_[0-9a-f-]{36}-`)

func (n *lockNode) String() string {
	if n == nil {
		return "none"
	}
	return id.ReplaceAllString(n.path, "")
}

// The method blame records a violation, if it is the first one.
func (b *ledger) blame(format string, args ...any) {
	if b.wrong == "" {
		b.wrong = id.ReplaceAllString(fmt.Sprintf(format, args...), "")
	}
}

// The method joined records the process to which a session belongs.
func (b *ledger) joined(session int64, p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions[session] = p
}

// The method ends records that a session is about to be ended early.
func (b *ledger) ends(session int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended[session] = true
}

// takesAway reports whether a deletion takes a node away from its owner. It does if the owner's session was ended early, or if the operator
// deletes the node. The session of the operator belongs to no process.
func (b *ledger) takesAway(session int64) bool {
	return b.ended[session] || b.scope.Remove && b.sessions[session] == nil
}

// isHalved reports whether the node with this token has lost its second znode. The others then pass it over.
func (b *ledger) isHalved(lock string, token int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.tokens[tokenAt{lock, token}]
	return n != nil && n.halved
}

// disturb records a fault. Everything that the fault leaves behind has to be deleted within the duration of two sessions.
func (b *ledger) disturb() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calm = time.Now().Add(2 * lease)
}

// The method changed records and checks a transaction of the server.
func (b *ledger) changed(changes []zktest.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := make(map[string]*lockNode) // the first node in each queue; a node whose second znode is deleted does not count
	for lock, queue := range b.queues {
		if i := slices.IndexFunc(queue, func(n *lockNode) bool { return !n.halved }); i >= 0 {
			first[lock] = queue[i]
		}
	}
	var fresh []*lockNode
	turn := make(map[string]*lockNode) // by lock: the contender whose node was deleted
	shared := b.sharedBy(changes)
	for _, c := range changes {
		z, ok := parseZnode(c.Path)
		switch {
		case !ok:
		case z.marker == permitMarker && c.Op == "create":
			defer b.judgeTaken(z, c, turn, first)
			b.permits[z.id], b.takers[z.id] = b.sessions[c.Session], b.sessions[c.Session]
		case z.marker == permitMarker && c.Op == "delete":
			b.judgeDelete(c, b.takers[z.id])
			delete(b.permits, z.id)
		case c.Op == "create" && z.forKazoo():
			b.secondCreated(z, c)
		case c.Op == "create" && shared[z.id] != nil:
			b.share(shared[z.id], z, c)
			fresh = append(fresh, shared[z.id])
		case c.Op == "create":
			fresh = append(fresh, b.created(z, c))
		case c.Op == "delete" && shared[z.id] != nil: // the transaction also creates the node's replacement
		case c.Op == "delete" && b.named[z.id] != nil:
			n := b.named[z.id]
			if turn[z.lock] = n; z.forKazoo() {
				n.halved = true
			} else {
				if n.gone = true; !n.served && b.calm.IsZero() {
					b.unused = append(b.unused, n)
				}
				b.queues[n.lock] = slices.DeleteFunc(b.queues[n.lock], func(x *lockNode) bool { return x == n })
			}
			if b.takesAway(c.Session) {
				n.revoked = time.Now()
			} else {
				b.judgeDelete(c, n.owner)
			}
		}
	}
	for _, n := range fresh {
		b.judgeSingle(n)
		if n.owner.bridged != (n.second != "") {
			b.blame("%s, bridged %t, has the second znode %q", n.owner.name, n.owner.bridged, n.second)
		}
	}
	if there := b.scope.permits(); len(b.permits) > there {
		b.blame("%d permits of %d are taken", len(b.permits), there)
	}
}

func (b *ledger) created(z znodeName, c zktest.Change) *lockNode {
	n := &lockNode{
		path: c.Path, lock: z.lock, mode: modes[z.marker], token: c.Zxid,
		owner: b.sessions[c.Session], session: c.Session, step: b.step,
	}
	// If the old node was taken away, a request that was sent a second time may have created it again.
	if old := b.named[z.id]; old != nil && old.revoked.IsZero() {
		b.blame("the id of %s was used before: a late delete could hit the wrong node", n.path)
	}
	b.named[z.id], b.tokens[tokenAt{n.lock, n.token}] = n, n
	b.queues[z.lock] = append(b.queues[z.lock], n)
	return n
}

// judgeDelete checks I12 for a deletion: only the process that has created a znode deletes it.
func (b *ledger) judgeDelete(c zktest.Change, of *process) {
	if by := b.sessions[c.Session]; by != of && !b.takesAway(c.Session) {
		b.blame("%s of %s was deleted by another process", c.Path, of.name)
	}
}

// judgeRequest checks I12 for a request: a process asks to delete only znodes that it has created.
func (b *ledger) judgeRequest(f *zktest.Frame) {
	z, ok := parseZnode(f.Path)
	if !ok || f.Op != "delete" && (f.Op != "multi" || f.First != "delete") {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.takers[z.id]
	if n := b.named[z.id]; n != nil {
		of = n.owner
	}
	if by := b.sessions[f.Session]; by != of {
		b.blame("%s asks to delete %s, which it did not create", by.name, f.Path)
	}
}

// judgeSingle checks I3 after a transaction: a process without nodes to clear up has no second node in the queue of a lock.
func (b *ledger) judgeSingle(n *lockNode) {
	if n.shared || n.owner == nil || n.owner.tier == nil || time.Now().Before(b.calm) ||
		n.owner.tier.(interface{ Reaping() int }).Reaping() > 0 {
		return
	}
	for _, other := range b.queues[n.lock] {
		if other != n && other.owner == n.owner && (other.mode == second.Exclusive) == (n.mode == second.Exclusive) {
			b.blame("%s has %s and %s in the queue, and nothing to clear up", n.owner.name, other.path, n.path)
		}
	}
}

// judgeTaken checks that a permit is taken only by the first contender in the queue, and that the same transaction deletes the contender's
// node.
func (b *ledger) judgeTaken(z znodeName, c zktest.Change, turn, first map[string]*lockNode) {
	queue := strings.TrimSuffix(z.lock, "/leases") + "/locks"
	if n := turn[queue]; n == nil || n != first[queue] {
		b.blame("%s was taken by %v, but %v is first in the queue", c.Path, n, first[queue])
	}
}

// One transaction may replace a writer's node by a node of a reader; the node is then shared. The new node has the same id and number, and
// therefore the same place in the queue.

// sharedBy returns, by id, the nodes that become shared in a transaction.
func (b *ledger) sharedBy(changes []zktest.Change) map[string]*lockNode {
	shared, deleted := make(map[string]*lockNode), make(map[string]bool)
	for _, c := range changes {
		z, ok := parseZnode(c.Path)
		switch {
		case !ok || z.forKazoo():
		case c.Op == "delete":
			deleted[z.id] = true
		case c.Op == "create" && deleted[z.id]:
			shared[z.id] = b.named[z.id]
		}
	}
	return shared
}

// The method share records that the znode z replaces the first znode of n. A contender right behind a writer of tierlock watches the
// writer's znode. It takes the deletion of that znode for the end of the writer, and does not see that a reader remains. Therefore that
// contender has to be a reader, which need not wait for another reader.
func (b *ledger) share(n *lockNode, z znodeName, c zktest.Change) {
	was, _ := parseZnode(n.path)
	if c.Session != n.session || n.mode != second.Writing || n.shared || modes[z.marker] != second.Reading || z.number != was.number {
		b.blame("%s of session %#x took the place of %s of %#x", c.Path, c.Session, n.path, n.session)
	}
	n.path, n.shared, n.second = c.Path, true, ""
	queue := b.queues[n.lock]
	i := slices.Index(queue, n)
	halves := b.scope.Remove && b.scope.Bridged // a node that has lost one znode still has a place in the queue
	if !halves && (i+1 >= len(queue) || !queue[i+1].reads()) {
		b.blame("%s was shared with no reader right behind", n.path)
	}
}

func (b *ledger) secondCreated(z znodeName, c zktest.Change) {
	n := b.named[z.id]
	if n == nil {
		b.blame("%s was created without its first znode", c.Path)
		return
	}
	if first, _ := parseZnode(n.path); !first.pairs(z) {
		b.blame("%s was created for %s", c.Path, n.path)
	}
	n.second = c.Path
}

// judgeNodesLocked checks the ledger's nodes of the callers that believe to have a lock or permits.
func (w *queues) judgeNodesLocked(e *ensemble) {
	b := e.ledger
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wrong != "" {
		w.blameLocked("znodes", "%s", b.wrong)
	}
	b.step = w.step + 1
	for _, n := range b.unused {
		w.judgeUnusedLocked(n)
	}
	b.unused = nil
	for _, x := range w.spans {
		n := b.tokens[tokenAt{x.paths[0], x.token}]
		switch {
		case x.token == 0, x.begin >= 0 && x.end >= 0:
			continue
		case n == nil || n.owner != x.process:
			w.blameLocked("znodes", "%s has token %d, which is no node of its process", x.name, x.token)
			continue
		case !n.revoked.IsZero():
			x.weight = 0
		}
		if n.served = true; x.end < 0 && x.hold.Err() == nil && !x.closing {
			w.judgeNodeLocked(e, x, n)
		}
	}
}

// judgeUnusedLocked checks a node that was deleted before it served a caller. Without a fault, a node must not be deleted while a caller
// waits for it: if another caller gives up, the process keeps its place (I9). A reader's node is an exception if the first waiter is now a
// writer. So is a node whose request was canceled before the caller came.
func (w *queues) judgeUnusedLocked(n *lockNode) {
	if !n.revoked.IsZero() || n.owner.disturbed || w.scope.calls(Both) { // a caller of both locks may give up one while it waits for the other
		return
	}
	for _, c := range n.owner.callers {
		reads := c.call == Read || c.call == Upgrade
		if c.state == waiting && !c.ended && c.after < n.step && c.call.mutex() == n.lock && !w.scope.calls(Try) && !w.worn && !c.closing &&
			(n.mode == second.Exclusive || n.mode == second.Writing || reads) && w.scope.MaxWait == 0 && !c.alone {
			w.blameLocked("znodes", "%s is gone, for which %s has waited since before", n, c.name)
		}
	}
}

// judgeNodeLocked checks n, the node of a caller's hold.
func (w *queues) judgeNodeLocked(e *ensemble, x *span, n *lockNode) {
	b := e.ledger
	// No lease protects against this deletion. The server notifies the holder, once it has held the lock long enough to watch its node.
	if !n.revoked.IsZero() {
		due := max(0, x.got.Add(lease/6).Sub(n.revoked)) + time.Millisecond
		if x.missed || x.disturbed && !w.scope.Remove || len(e.lasting) > 0 || w.anyUnderWayLocked(x.process) || time.Now().Before(b.calm) {
			due = math.MaxInt64
		}
		if since := time.Since(n.revoked); since > due {
			w.blameLocked("lost", "%s has not learned for %v that its node is gone", x.name, since)
		}
		return
	}
	if n.gone || n.halved {
		w.blameLocked("znodes", "%s has it, whose node %s is gone", x.name, n)
	}
	if n.reads() && x.weight == whole {
		w.blameLocked("znodes", "%s writes with %s, a node to read", x.name, n)
	}
	for _, other := range b.queues[n.lock] {
		if other == n {
			break
		}
		if !other.halved && !(n.reads() && other.reads()) && other.token < n.token && !w.worn {
			w.blameLocked("znodes", "%s has it while %s of %s is before it in the queue", x.name, other, other.owner.name)
		}
	}
}

// judgeEndLocked checks that no contender (I5) and no watch (I10) is left at a lock that no caller wants. A watch on the children of a
// lock, or on the two directories of a semaphore, may stay until the next change there.
func (w *queues) judgeEndLocked(e *ensemble) {
	for _, p := range w.processes {
		if n := p.tier.(interface{ Reaping() int }).Reaping(); n > 0 && !p.closing {
			w.blameLocked("left", "%s has %d nodes to delete", p.name, n)
		}
	}
	if n := e.Watches(); n > len(w.processes)*5 {
		w.blameLocked("left", "%d watches", n)
	}
}
