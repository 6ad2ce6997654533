package trace

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/stress/internal/clock"
)

// A tree tracks which nodes can have existed in ZooKeeper. Its answers show the order of execution: the answer to a write has the number of
// that transaction, and the answer to a read has the number of the newest transaction before it. Therefore the checker need not search for
// an order. A node was deleted between the last answer that shows it and the first one that does not. A request, or the end of a session,
// has to explain the deletion.
type tree struct {
	txns     map[command]*txn
	creating map[string]*txn   // requests by the path of the node that they create, without a number that the server assigns
	removing map[string][]*txn // requests by the path of the node that they have deleted or may have deleted
	nodes    map[string]*node
	tokens   map[tokenAt]*node
	queues   map[string]*nodes
	sessions map[int64]*owner
	lines    map[lineOf]*heard
	order    map[int64]bool // the numbers of the transactions that were answered
	last     int64          // the highest transaction that was answered
}

type lineOf struct {
	process string
	number  int64
}

// A tokenAt is a token together with the path above its nodes. All nodes that one transaction creates have the same token.
type tokenAt struct {
	path  string
	token int64
}

// A txn is a request and its outcome.
type txn struct {
	Request
	process string
	at      clock.Instant // when the request was sent
	begun   bool          // the request was sent before the event that is checked now
	reply   *Reply        // nil: the request may have been executed at any time since it was sent, or never
	floor   int64         // the highest transaction that had been answered when the request was sent
}

// A node is an ephemeral node, which is deleted with its session.
type node struct {
	path   string
	by     *txn
	number int           // the number at the end of its name
	born   int64         // the transaction that created it, 0 if that is not known
	place  int64         // its place in the queue: the transaction of its token, 0 if that is not known
	heir   *node         // the node that has replaced this one, when its writer became a reader
	seen   int64         // the last transaction at which it existed
	gone   int64         // the first transaction at which it did not exist, 0 if it may still exist
	missed clock.Instant // when it became known that the node does not exist
}

// A nodes has the nodes below one path.
type nodes struct {
	asked   int              // how many creations of nodes were requested so far
	made    int              // how often the path itself was created, or may have been created
	there   map[string]*node // nodes that are not known to be deleted
	ordered []*node          // by number: the nodes whose number the server has returned
	permits int              // the number of permits in the data of the path, 0 if it is not known
}

// An owner is a session of ZooKeeper. A session owns nodes.
type owner struct {
	id     int64
	ttl    time.Duration
	until  clock.Instant // the session cannot expire before
	closed bool          // its process has sent a request to close it
	lives  int64         // the last transaction at which the session existed
	over   int64         // the first transaction at which the session was over, 0 if it may still exist
}

// A heard has the messages that have arrived on a connection, and the messages that are still due.
type heard struct {
	asked   []int64         // the numbers of the requests that have no answer yet
	zxid    int64           // the last transaction that an answer has shown
	watched map[string]bool // nodes whose deletion the server has to report on this connection
	awaited map[string]bool // nodes in a setWatches without an answer, except those whose deletion was reported since
	gone    []string        // nodes whose deletion was reported since the last answer
}

func checkNodes(events []Event) error {
	t := &tree{
		txns: map[command]*txn{}, creating: map[string]*txn{}, removing: map[string][]*txn{}, nodes: map[string]*node{},
		tokens: map[tokenAt]*node{}, queues: map[string]*nodes{}, sessions: map[int64]*owner{}, lines: map[lineOf]*heard{},
		order: map[int64]bool{},
	}
	events = inOrder(events)
	t.foretell(events)
	for i, e := range events {
		if err := t.take(e); err != nil {
			return e.wrong(i, len(events), err)
		}
	}
	return nil
}

// foretell looks at all events in advance. It collects the answer to each request, and for each node the requests that may delete it.
func (t *tree) foretell(events []Event) {
	var all []*txn
	for _, e := range events {
		key := command{e.Process, e.Number}
		switch x := t.txns[key]; {
		case e.Kind == Sent:
			t.txns[key] = &txn{Request: *e.Request, process: e.Process, at: e.At}
			all = append(all, t.txns[key])
		case e.Kind == Answered && x != nil:
			x.reply = e.Reply
		}
	}
	for _, x := range all {
		paths := x.created()
		for _, o := range x.ops() {
			switch {
			case !x.open() && !x.done():
			case o.Op == "delete":
				t.removing[o.Path] = append(t.removing[o.Path], x)
			case !o.creates():
				continue
			case o.Lasts:
				t.below(o.Path).made++
			default:
				t.creating[o.Path] = x
				if len(paths) > 0 {
					t.add(paths[0], x, x.reply.Zxid)
				}
			}
			if o.creates() && len(paths) > 0 {
				paths = paths[1:]
			}
		}
	}
}

func (x *txn) open() bool { return x.reply == nil }
func (x *txn) done() bool { return x.reply != nil && x.reply.Code == wire.CodeOK }

// The method ops returns the operations of a multi. For any other request, it returns the request itself.
func (x *txn) ops() []Request {
	if x.Op == "multi" {
		return x.Ops
	}
	return []Request{x.Request}
}

func (x *txn) created() []string {
	if x.done() {
		return x.reply.Paths
	}
	return nil
}

func (r Request) creates() bool { return r.Op == "create" || r.Op == "createContainer" }

func (r Request) writes() bool {
	return r.creates() || r.Op == "delete" || r.Op == "multi" || r.Op == "setData"
}

func (t *tree) below(path string) *nodes {
	q := t.queues[path]
	if q == nil {
		q = &nodes{there: map[string]*node{}}
		t.queues[path] = q
	}
	return q
}

// The method add records a node. born is 0 if the creation was not answered.
func (t *tree) add(at string, by *txn, born int64) *node {
	n := &node{path: at, by: by, born: born, place: born}
	n.number, _ = strconv.Atoi(at[max(0, len(at)-digits):])
	t.nodes[at] = n
	if born != 0 {
		t.tokens[tokenAt{path.Dir(at), born}] = n
	}
	// This request names the node in full. The node then replaces one that the same request deletes, and takes over its place in the queue.
	if t.creating[at] == by {
		for _, o := range by.ops() {
			if old := t.nodes[o.Path]; o.Op == "delete" && old != nil {
				old.heir, n.place = n, old.place
			}
		}
	}
	return n
}

// digits is the length of the number at the end of a node's name.
const digits = 10

func (t *tree) session(id int64) *owner {
	s := t.sessions[id]
	if s == nil {
		s = &owner{id: id}
		t.sessions[id] = s
	}
	return s
}

// The method take checks whether an event is possible.
func (t *tree) take(e Event) error {
	x := t.txns[command{e.Process, e.Number}]
	key := lineOf{e.Process, e.Line}
	l := t.lines[key]
	if l == nil {
		l = &heard{watched: map[string]bool{}, awaited: map[string]bool{}}
		t.lines[key] = l
	}
	switch e.Kind {
	case Sent:
		l.asked = append(l.asked, e.Number)
		for _, at := range x.Watches {
			l.awaited[at] = true
		}
		t.send(x)
	case Answered:
		if x == nil || len(l.asked) == 0 || l.asked[0] != e.Number {
			return fmt.Errorf("an answer to request %d, which was not sent, or not before all others without an answer", e.Number)
		}
		l.asked = l.asked[1:]
		if err := t.answer(x, l, e.At); err != nil {
			return fmt.Errorf("%s %s: %w", x.Op, x.Path, err)
		}
	case Gone:
		return t.told(l, e.Reply.Paths[0], e.At)
	case Got:
		return t.got(e)
	case Valid:
		return t.valid(e)
	}
	return nil
}

// send records that a request was sent. From now on the server may execute it.
func (t *tree) send(x *txn) {
	x.begun, x.floor = true, t.last
	if x.Op == wire.OpName(wire.OpClose) {
		t.session(x.Session).closed = true
	}
	paths := x.created()
	for _, o := range x.ops() {
		if !o.creates() {
			continue
		}
		q := t.below(path.Dir(o.Path))
		q.asked++
		if len(paths) > 0 {
			if n := t.nodes[paths[0]]; n != nil {
				q.there[n.path] = n
			}
			paths = paths[1:]
		}
	}
}

// answer checks whether the answer to a request is possible. Before the answer, the connection may have been notified of deletions: the
// answer has to show them all.
func (t *tree) answer(x *txn, l *heard, now clock.Instant) error {
	r := x.reply
	if x.Op == wire.OpName(wire.OpConnect) {
		return t.connected(x, now)
	}
	if x.Op == wire.OpName(wire.OpRemoveWatches) {
		// A deletion before the removal of the watch would have been reported before this answer. From now on, no event is due.
		delete(l.watched, x.Path)
	}
	if r.Zxid <= 0 {
		return nil
	}
	if r.Zxid < l.zxid {
		return fmt.Errorf("the server knows transaction %#x, and knew %#x before", r.Zxid, l.zxid)
	}
	l.zxid = r.Zxid
	for _, at := range l.gone {
		if err := t.misses(t.nodes[at], r.Zxid, now); err != nil {
			return err
		}
	}
	l.gone = nil
	for _, at := range x.Watches {
		if l.awaited[at] && r.Code == wire.CodeOK { // if it is not awaited any more, its deletion was reported before this answer
			l.watched[at] = true
		}
		delete(l.awaited, at)
	}
	for at := range l.watched {
		if n := t.nodes[at]; n != nil && n.gone != 0 && n.gone <= r.Zxid {
			return fmt.Errorf("comes before the end of %s is told, which was at %#x", at, n.gone)
		}
	}
	switch {
	case x.writes() && x.done():
		return t.wrote(x, now)
	case r.Code == wire.CodeNoNode:
		return t.finds(x, now)
	case r.Code != wire.CodeOK:
		return nil
	case x.Op == wire.OpName(wire.OpGetChildren2):
		return t.lists(x.Path, r.Names, r.Zxid, now)
	case x.Op == wire.OpName(wire.OpMultiRead):
		return t.reads(x, now)
	case x.Op == wire.OpName(wire.OpGetData):
		l.watched[x.Path] = l.watched[x.Path] || x.Watch
		return t.tells(x.Path, *r, r.Zxid)
	}
	return nil
}

// connected records the answer to a handshake.
func (t *tree) connected(x *txn, now clock.Instant) error {
	s := t.session(x.reply.Session)
	switch {
	case x.reply.Session == 0:
		return t.ends(t.session(x.Session), 0, now)
	case x.reply.Session == x.Session && s.over != 0:
		return fmt.Errorf("session %#x goes on, and was over at %#x", s.id, s.over)
	case x.reply.Session != x.Session:
		s.ttl, s.until = x.reply.Timeout, x.at.Add(x.reply.Timeout)
	}
	s.ttl = min(s.ttl, x.reply.Timeout)
	return nil
}

// The method ends records the end of a session, with its transaction if that is known.
func (t *tree) ends(s *owner, zxid int64, now clock.Instant) error {
	switch {
	case !s.closed && now < s.until:
		return fmt.Errorf("session %#x is over %v before it can be", s.id, s.until.Sub(now))
	case zxid != 0 && s.lives >= zxid:
		return fmt.Errorf("session %#x is over at %#x, and was there at %#x", s.id, zxid, s.lives)
	case zxid != 0 && (s.over == 0 || zxid < s.over):
		s.over = zxid
	}
	return nil
}

// The method wrote checks the answer to a write that was executed.
func (t *tree) wrote(x *txn, now clock.Instant) error {
	z, s := x.reply.Zxid, t.session(x.Session)
	switch {
	case t.order[z]:
		return fmt.Errorf("there are two transactions %#x", z)
	case z <= x.floor:
		return fmt.Errorf("is transaction %#x, and was sent when %#x had been answered", z, x.floor)
	case s.over != 0 && s.over <= z:
		return fmt.Errorf("is transaction %#x of session %#x, which was over at %#x", z, s.id, s.over)
	}
	t.order[z], t.last = true, max(t.last, z)
	s.until, s.lives = max(s.until, x.at.Add(s.ttl)), max(s.lives, z)
	paths := x.created()
	for _, o := range x.ops() {
		var err error
		switch {
		case o.creates() && len(paths) == 0:
			err = fmt.Errorf("does not say what was created for %s", o.Path)
		case o.creates():
			err = t.creates(o, paths[0], z, now)
			paths = paths[1:]
		case o.Op == "delete":
			err = t.deletes(o.Path, z, now)
		case o.Op == "check":
			_, err = t.sees(o.Path, z-1)
		case o.Op == "setData":
			if number, ok := strings.CutPrefix(o.Data, zkqueue.PermitsMark); ok {
				t.below(o.Path).permits, _ = strconv.Atoi(number)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The method creates is called for each node that a transaction has created. It checks the node and records it.
func (t *tree) creates(o Request, at string, z int64, now clock.Instant) error {
	dir, n := path.Dir(at), t.nodes[at]
	if o.Lasts {
		return nil
	}
	q := t.below(dir)
	if number, ok := strings.CutPrefix(at, o.Path); !ok || o.Sequence != (len(number) == digits) {
		return fmt.Errorf("has created %s for %s", at, o.Path)
	}
	if n.gone == 0 {
		q.there[at] = n
	}
	if all := t.queues[path.Dir(dir)]; all != nil && all.permits > 0 && path.Base(dir) == "leases" {
		if out := t.out(q, z, now); out > all.permits {
			return fmt.Errorf("has taken permits: %d are out at %#x, and there are only %d", out, z, all.permits)
		}
	}
	// If the path may have been created more than once, the numbers may have begun again at 0.
	if !o.Sequence || q.made > 1 || len(t.removing[dir]) > 0 {
		return nil
	}
	if n.number >= q.asked {
		return fmt.Errorf("has created %s, and %d were asked for", at, q.asked)
	}
	i, found := slices.BinarySearchFunc(q.ordered, n.number, func(m *node, number int) int { return cmp.Compare(m.number, number) })
	if found || i > 0 && q.ordered[i-1].born > z || i < len(q.ordered) && q.ordered[i].born < z {
		return fmt.Errorf("has created %s at %#x, whose number is not in the order of transactions", at, z)
	}
	q.ordered = slices.Insert(q.ordered, i, n)
	return nil
}

// tree.out counts the nodes that were created up to a transaction and that cannot have been deleted by now.
func (t *tree) out(q *nodes, z int64, now clock.Instant) (n int) {
	for _, m := range q.there {
		if m.born != 0 && m.born <= z && !t.removable(m, now) {
			n++
		}
	}
	return n
}

// The method deletes is called when an answer shows that a node was deleted. It records the deletion.
func (t *tree) deletes(at string, z int64, now clock.Instant) error {
	if t.queues[at] != nil { // at is a path above nodes, not a node
		return nil
	}
	n, err := t.sees(at, z-1)
	if err != nil {
		return err
	}
	n.end(z, now)
	delete(t.below(path.Dir(at)).there, at)
	return nil
}

func (n *node) end(z int64, now clock.Instant) {
	if n.gone == 0 || z < n.gone {
		n.gone = z
	}
	if n.missed == 0 {
		n.missed = now
	}
}

// The method sees records that a node existed at a transaction. It returns nil if at is a path above nodes and not a node.
func (t *tree) sees(at string, z int64) (*node, error) {
	if t.queues[at] != nil {
		return nil, nil
	}
	n := t.nodes[at]
	if n == nil {
		by := cmp.Or(t.creating[at], t.creating[at[:max(0, len(at)-digits)]])
		if by == nil || !by.begun || !by.open() {
			return nil, fmt.Errorf("%s is there at %#x, and nobody has created it", at, z)
		}
		n = t.add(at, by, 0)
		t.below(path.Dir(at)).there[at] = n
	}
	s := t.session(n.by.Session)
	switch {
	case !n.by.begun:
		return nil, fmt.Errorf("%s is there at %#x before anybody has asked for it", at, z)
	case n.born > z:
		return nil, fmt.Errorf("%s is there at %#x, and was created at %#x", at, z, n.born)
	case n.gone != 0 && n.gone <= z:
		return nil, fmt.Errorf("%s is there at %#x, and was gone at %#x", at, z, n.gone)
	case s.over != 0 && s.over <= z:
		return nil, fmt.Errorf("%s is there at %#x, and its session was over at %#x", at, z, s.over)
	}
	n.seen, s.lives = max(n.seen, z), max(s.lives, z)
	return n, nil
}

// The method removable reports whether a node can have been deleted by now, by a request or by the end of its session.
func (t *tree) removable(n *node, now clock.Instant) bool {
	s := t.session(n.by.Session)
	return n.gone != 0 || t.deleted(n) || s.closed || now >= s.until
}

// The method deleted reports whether a request to delete the node was sent: the request may have been executed.
func (t *tree) deleted(n *node) bool {
	return slices.ContainsFunc(t.removing[n.path], func(x *txn) bool { return x.begun })
}

// The method misses is called when an answer shows that a node did not exist at a transaction. It records that.
func (t *tree) misses(n *node, z int64, now clock.Instant) error {
	switch {
	case n == nil || n.born > z || n.born == 0 && z < n.seen:
		return nil // perhaps the node was created later
	case n.seen >= z:
		return fmt.Errorf("%s is not there at %#x, and was at %#x", n.path, z, n.seen)
	case !t.removable(n, now):
		return fmt.Errorf("%s is not there at %#x, and no step can have removed it", n.path, z)
	}
	for _, x := range t.removing[n.path] {
		if x.done() && x.reply.Zxid > z {
			return fmt.Errorf("%s is not there at %#x, and was deleted at %#x", n.path, z, x.reply.Zxid)
		}
	}
	if n.gone == 0 && !t.deleted(n) {
		if err := t.ends(t.session(n.by.Session), z, now); err != nil {
			return err
		}
	}
	n.end(z, now)
	delete(t.below(path.Dir(n.path)).there, n.path)
	return nil
}

// The method finds is called when a request has failed because a node did not exist. It records that the node was missing.
func (t *tree) finds(x *txn, now clock.Instant) error {
	ops := x.ops()
	if o := ops[min(x.reply.Failed, len(ops)-1)]; !o.creates() {
		return t.misses(t.nodes[o.Path], x.reply.Zxid, now)
	}
	return nil
}

// The method tells checks what a read has returned about a node.
func (t *tree) tells(at string, r Reply, z int64) error {
	n, err := t.sees(at, z)
	if n == nil || err != nil {
		return err
	}
	if n.born != 0 && n.born != r.Czxid || r.Owner != n.by.Session {
		return fmt.Errorf("it is of transaction %#x and session %#x, and was created by %#x under %#x", r.Czxid, r.Owner, n.born, n.by.Session)
	}
	if n.born == 0 {
		n.born, n.place = r.Czxid, cmp.Or(n.place, r.Czxid)
		t.tokens[tokenAt{path.Dir(n.path), n.born}] = n
	}
	return nil
}

// tree.reads checks all parts of the answer to a multiRead. A multiRead sets no watches.
func (t *tree) reads(x *txn, now clock.Instant) error {
	for i, part := range x.reply.Parts {
		at, z := x.Ops[i].Path, x.reply.Zxid
		var err error
		switch {
		case part.Code == wire.CodeNoNode:
			err = t.misses(t.nodes[at], z, now)
		case part.Code != wire.CodeOK:
		case x.Ops[i].Op == wire.OpName(wire.OpGetChildren):
			err = t.lists(at, part.Names, z, now)
		default:
			err = t.tells(at, part, z)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The method lists checks an answer that lists the nodes below a path.
func (t *tree) lists(above string, names []string, z int64, now clock.Instant) error {
	listed := map[string]bool{}
	for _, name := range names {
		at := above + "/" + name
		listed[at] = true
		if _, err := t.sees(at, z); err != nil {
			return err
		}
	}
	for at, n := range t.below(above).there {
		if listed[at] {
			continue
		}
		if err := t.misses(n, z, now); err != nil {
			return err
		}
	}
	return nil
}

// The method told records an event that reports the deletion of a node. All later answers on the connection have to show the deletion.
func (t *tree) told(l *heard, at string, now clock.Instant) error {
	delete(l.watched, at)
	delete(l.awaited, at)
	n := t.nodes[at]
	switch {
	case n == nil: // at is a path above nodes, not a node
		return nil
	case !n.by.begun || !t.removable(n, now):
		return fmt.Errorf("a notification says that %s has ended, but no step can have removed it", at)
	}
	l.gone = append(l.gone, at)
	return nil
}

// got checks an event that says that a program has acquired the lock: can that be?
func (t *tree) got(e Event) error {
	n := t.tokens[tokenAt{e.Hold.Path, e.Hold.Token}]
	if n == nil || n.by.process != e.Process {
		return fmt.Errorf("%s: has the lock with token %#x, but has no node with this token", e.Hold.Path, e.Hold.Token)
	}
	for _, m := range t.below(e.Hold.Path).there {
		if m.place != 0 && m.place < n.place && !(m.reads() && n.reads()) && !t.removable(m, e.At) {
			return fmt.Errorf("%s: has the lock with token %#x, and %s is before it", e.Hold.Path, e.Hold.Token, m.path)
		}
	}
	return nil
}

func (n *node) reads() bool {
	kind, _, _ := zkqueue.ParseName(path.Base(n.path))
	return kind.Reads()
}

// valid checks an event that says that a program still holds the lock: can that be?
func (t *tree) valid(e Event) error {
	n, at := t.tokens[tokenAt{e.Hold.Path, e.Hold.Token}], e.At.Add(-skew)
	if n == nil {
		return nil // got refuses a hold without a node
	}
	if n.heir != nil {
		n = n.heir
	}
	switch until := t.session(n.by.Session).until; {
	case n.missed != 0 && n.missed < at:
		return fmt.Errorf("%s: has the lock with token %#x, %v after its node was missed", e.Hold.Path, e.Hold.Token, at.Sub(n.missed))
	case at > until:
		return fmt.Errorf("%s: has the lock with token %#x, %v after the end of its session", e.Hold.Path, e.Hold.Token, at.Sub(until))
	}
	return nil
}
