package sim

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// A book keeps account of every lock node and every tenure, from both sides: what the server did and what the processes
// were told. The two together show whether the promises hold.
type book struct {
	plan    Plan
	diary   *diary
	tickets int // jobs that have queued so far, by order of arrival; used by the driver only

	mu       sync.Mutex // guards the fields below; taken under the server's lock, so no call of the server under it
	sessions map[int64]*worker
	newest   map[*worker]int64 // session
	ended    map[int64]bool    // sessions that were ended before their time
	named    map[string]*node  // by id, all there ever were
	byToken  map[tokenAt]*node
	queues   map[string][]*node    // live nodes by lock path, in order of creation
	tenures  map[*tenure]struct{}  // not released yet
	waiting  map[*job]struct{}     // jobs that have asked for a lock and not been answered
	writer   map[string]*tenure    // granted last of those that write, by lock path
	highest  map[string]*tenure    // of those granted, the one with the highest token, by lock path
	leases   map[string]int64      // sessions that have permits, by id of the permit
	takers   map[string]*worker    // of permits, by id of the permit, all there ever were
	portions map[*portion]struct{} // not released yet
	tried    map[cohort]tries
	fences   map[string]fence // by register
	calmAt   time.Time        // when the latest fault cannot matter any more
	granted  int
}

// A tenure is what one call tree has from the grant to the beginning of the last release.
type tenure struct {
	job   *job
	node  *node
	token int64
	hold  *tier.Hold // the one that will be released last
	reads bool       // those of its holds that are not released do
}

func newBook(p Plan, d *diary) *book {
	return &book{
		plan: p, diary: d,
		sessions: make(map[int64]*worker),
		newest:   make(map[*worker]int64),
		ended:    make(map[int64]bool),
		named:    make(map[string]*node),
		byToken:  make(map[tokenAt]*node),
		queues:   make(map[string][]*node),
		tenures:  make(map[*tenure]struct{}),
		waiting:  make(map[*job]struct{}),
		writer:   make(map[string]*tenure),
		highest:  make(map[string]*tenure),
		leases:   make(map[string]int64),
		takers:   make(map[string]*worker),
		portions: make(map[*portion]struct{}),
		tried:    make(map[cohort]tries),
		fences:   make(map[string]fence),
		calmAt:   time.Now(),
	}
}

// joined notes whose session it is.
func (b *book) joined(session int64, p *worker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[session] == nil {
		b.sessions[session], b.newest[p] = p, session
		b.diary.note("%s has session %#x", p, session)
	}
}

// ends notes that a session is about to be ended before its time.
func (b *book) ends(session int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended[session] = true
}

// disturb notes a fault that lasts for d. What it leaves behind is cleared up within two session timeouts.
func (b *book) disturb(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := time.Now().Add(d + 2*sessionTimeout); until.After(b.calmAt) {
		b.calmAt = until
	}
}

func (b *book) owner(session int64) *worker {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions[session]
}

// holder returns the process that has a lock, any of them, nil if there is none.
func (b *book) holder() (p *worker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := 0
	for t := range b.tenures {
		if first == 0 || t.job.id < first {
			first, p = t.job.id, t.node.owner
		}
	}
	return p
}

// queue returns the paths of the nodes that queue for a lock.
func (b *book) queue(lock string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var paths []string
	for _, n := range b.queues[lock] {
		paths = append(paths, n.path)
		if n.second != "" && !n.halved {
			paths = append(paths, n.second)
		}
	}
	return paths
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A node is a lock node on the server: what one process queues with.
type node struct {
	path    string // of its first znode
	lock    string
	mode    second.Mode
	shared  bool   // it was a writer's, and is a reader's
	second  string // of a bridged process, the path of the znode for kazoo
	halved  bool   // second is gone
	token   int64
	owner   *worker
	session int64
	created time.Time
	ahead   []*node   // those before it at that time
	served  time.Time // when it was granted first
	gone    bool
	revoked time.Time // when it was taken away by a fault that no lease covers, zero if it was not
}

func (n *node) reads() bool { return n.shared || n.mode == second.Reading }

// beside reports whether both may have the lock at the same time.
func (n *node) beside(other *node) bool { return n.reads() && other.reads() }

// A cohort is what queues for one lock in one process, and has one node at most. A mutex and a reader/writer lock of one path
// are two.
type cohort struct {
	worker *worker
	lock   string
	rw     bool
}

func (n *node) cohort() cohort { return cohort{n.owner, n.lock, n.mode != second.Exclusive} }

// changed follows a transaction of the server.
func (b *book) changed(view zktest.View, changes []zktest.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first *node // in the queue for permits; a half of a pair does not count
	if at := slices.IndexFunc(b.queues[permitQueue], func(n *node) bool { return !n.halved }); at >= 0 {
		first = b.queues[permitQueue][at]
	}
	var fresh []*node
	shared := b.sharedBy(changes)
	for _, c := range changes {
		z, ok := parseZnode(c.Path)
		switch {
		case !ok && c.Op == "setData" && strings.HasPrefix(c.Path, register("")):
			b.written(view, c)
		case !ok:
			b.diary.note("server: %v %s", c.Op, c.Path)
		case z.marker == permitMarker: // later, all together
		case c.Op == "create" && z.forKazoo():
			b.secondCreated(z, c)
		case c.Op == "create" && shared[z.id] != nil:
			b.share(shared[z.id], z, c)
		case c.Op == "create":
			fresh = append(fresh, b.created(z, c))
		case c.Op == "delete" && shared[z.id] != nil: // what takes its place comes in the same transaction
		case c.Op == "delete" && z.forKazoo():
			b.secondDeleted(z, c)
		case c.Op == "delete":
			b.deleted(z, c)
		}
	}
	for _, n := range fresh {
		b.checkSingle(n)
		b.checkPair(n)
	}
	for _, n := range shared {
		b.checkPair(n)
	}
	if b.plan.Permits > 0 {
		b.permitsChanged(changes, first)
	}
}

func (b *book) created(z znodeName, c zktest.Change) *node {
	n := &node{path: c.Path, lock: z.lock, mode: modes[z.marker], token: c.Zxid, owner: b.sessions[c.Session], session: c.Session,
		created: time.Now()}
	b.diary.note("server: %s of %v created, czxid %d", short(n.path), n.owner, n.token)
	if b.named[z.id] != nil {
		b.diary.violate("I12", "the id of %s was used before: a late delete could hit the wrong node", n.path)
	}
	n.ahead = slices.Clone(b.queues[z.lock])
	b.named[z.id], b.byToken[tokenAt{register(n.lock), n.token}] = n, n
	b.queues[z.lock] = append(b.queues[z.lock], n)
	return n
}

func (b *book) deleted(z znodeName, c zktest.Change) {
	n := b.named[z.id]
	by := b.sessions[c.Session]
	b.diary.note("server: %s of %v deleted by %v", short(n.path), n.owner, by)
	b.queues[n.lock] = slices.DeleteFunc(b.queues[n.lock], func(o *node) bool { return o == n })
	n.gone = true
	if by == operator || b.ended[c.Session] {
		n.revoked = time.Now()
	} else if by != n.owner {
		b.diary.violate("I12", "%s of %v was deleted by %v", n.path, n.owner, by)
	}
	b.checkPlace(n)
	for t := range b.tenures {
		if t.node == n && n.revoked.IsZero() && !closed(t.hold.Lost()) {
			b.diary.violate("I7", "%s is gone from the server (by %v), and its holder %v does not know", n.path, by, t.job)
		}
	}
}

// checkSingle is called at the creation of n, the whole transaction being done.
func (b *book) checkSingle(n *node) {
	if n.owner == operator || n.owner == nil || n.owner.reaping() > 0 || time.Now().Before(b.calmAt) {
		return
	}
	for _, other := range b.queues[n.lock] {
		if other != n && other.cohort() == n.cohort() {
			b.diary.violate("I3", "%v has %s and %s in the queue, and nothing to clear up", n.owner, short(other.path), short(n.path))
		}
	}
}

// requested follows a request to the server.
func (b *book) requested(f *zktest.Frame) {
	z, ok := parseZnode(f.Path)
	if !ok || f.Op != "delete" && (f.Op != "multi" || f.First != "delete") {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	by, of := b.sessions[f.Session], b.takers[z.id]
	if n := b.named[z.id]; n != nil {
		of = n.owner
	}
	if by != operator && by != of {
		b.diary.violate("I12", "%v asks to delete %s, which it did not create", by, f.Path)
	}
}

// A znodeName is what the name of a znode of a lock tells.
type znodeName struct {
	lock   string // path of the lock
	id     string // of the node: its znodes have it in common, also those that take the place of others
	marker string
	number int // that the server gave it
}

var znodePath = regexp.MustCompile(`^(.*)/(_c_[0-9a-f-]{36})-(lock-|__WRIT__|__READ__|__lock__|__rlock__|lease-)(\d{10})$`)

// parseZnode reports false for a path of any other form.
func parseZnode(path string) (z znodeName, ok bool) {
	m := znodePath.FindStringSubmatch(path)
	if m == nil {
		return z, false
	}
	number, _ := strconv.Atoi(m[4]) // the pattern sees to it
	return znodeName{lock: m[1], id: m[2], marker: m[3], number: number}, true
}

// permitMarker is that of the node of a permit, which is in no queue.
const permitMarker = "lease-"

// modes are the modes of nodes by the marker of their first znode.
var modes = map[string]second.Mode{"lock-": second.Exclusive, "__WRIT__": second.Writing, "__READ__": second.Reading}

// forKazoo reports whether it is a second znode: kazoo, which sees nothing else, stays out for as long as it is there.
func (z znodeName) forKazoo() bool { return z.marker == "__lock__" || z.marker == "__rlock__" }

// pairs reports whether second is what belongs right behind z.
func (z znodeName) pairs(second znodeName) bool {
	return second.id == z.id && second.number == z.number+1 && (second.marker == "__rlock__") == (z.marker == "__READ__")
}

// short is a node's name for the eye: what is unique about it, its kind and its number.
func short(path string) string {
	z, ok := parseZnode(path)
	if !ok {
		return path
	}
	return z.id[3:7] + "…" + strings.Trim(z.marker, "_-") + path[len(path)-10:]
}

// A writer's node is shared when a reader's takes its place in one transaction: with the same id and number, so that it stays
// where it was in the queue.

// sharedBy returns the nodes that a transaction shares, by id.
func (b *book) sharedBy(changes []zktest.Change) map[string]*node {
	var shared map[string]*node
	deleted := make(map[string]bool)
	for _, c := range changes {
		z, ok := parseZnode(c.Path)
		switch {
		case !ok || z.forKazoo():
		case c.Op == "delete":
			deleted[z.id] = true
		case c.Op == "create" && deleted[z.id]:
			if shared == nil {
				shared = make(map[string]*node)
			}
			shared[z.id] = b.named[z.id]
		}
	}
	return shared
}

// share notes that the znode z takes the place of the first one of n.
func (b *book) share(n *node, z znodeName, c zktest.Change) {
	b.diary.note("server: %s of %v is shared, czxid %d", short(n.path), n.owner, c.Zxid)
	was, _ := parseZnode(n.path)
	if c.Session != n.session || n.mode != second.Writing || n.shared || modes[z.marker] != second.Reading || z.number != was.number {
		b.diary.violate("share", "%s of session %#x took the place of %s of %#x", c.Path, c.Session, n.path, n.session)
	}
	n.path, n.shared, n.second = c.Path, true, ""
	for t := range b.tenures {
		if t.node == n && !t.reads {
			b.diary.violate("I1", "%s was shared while %v writes", short(n.path), t.job)
		}
	}
	b.checkFollower(n)
}

// checkFollower: whoever is right behind a writer of ours takes its departure for the end of it unless it is watched that a
// reader remains. So the one right behind has to be one that does not care.
func (b *book) checkFollower(n *node) {
	if b.plan.has(Deletion) && b.plan.Bridged { // half a node has a place in the queue, too
		return
	}
	queue := b.queues[n.lock]
	i := slices.Index(queue, n)
	if i+1 >= len(queue) || !queue[i+1].reads() {
		b.diary.violate("share", "%s was shared with no reader right behind", short(n.path))
	}
}

// bridges reports whether a process of this name is bridged.
func (p Plan) bridges(name string) bool {
	return p.Bridged && mix(p.Seed, uint64(len(name)), uint64(name[len(name)-1]), 2)%2 == 0
}

// A bridged process has a second znode for each node, which has to come and go with the first one.

func (b *book) secondCreated(z znodeName, c zktest.Change) {
	n := b.named[z.id]
	if n == nil {
		b.diary.violate("bridge", "%s was created without its first znode", c.Path)
		return
	}
	if first, _ := parseZnode(n.path); !first.pairs(z) {
		b.diary.violate("bridge", "%s was created for %s", c.Path, n.path)
	}
	n.second = c.Path
}

func (b *book) secondDeleted(z znodeName, c zktest.Change) {
	n := b.named[z.id]
	if n == nil { // which was said at its creation
		return
	}
	by := b.sessions[c.Session]
	b.diary.note("server: second znode of %s deleted by %v", short(n.path), by)
	n.halved = true
	if by == operator || b.ended[c.Session] {
		n.revoked = time.Now()
	} else if by != n.owner {
		b.diary.violate("I12", "%s of %v was deleted by %v", n.second, n.owner, by)
	}
	for t := range b.tenures {
		if t.node == n && n.revoked.IsZero() && !closed(t.hold.Lost()) {
			b.diary.violate("I7", "kazoo may have the lock of %v, whose %s is gone (by %v)", t.job, n.second, by)
		}
	}
}

// checkPair is called when the first znode of n was created, the whole transaction being done.
func (b *book) checkPair(n *node) {
	if n.owner != nil && n.owner.bridged != (n.second != "") {
		b.diary.violate("bridge", "%v, bridged %t, has the second znode %q", n.owner, n.owner.bridged, n.second)
	}
}

// A tries says how many jobs of a cohort try to get the lock, and when the last one before ended, whose node may be gone later.
type tries struct {
	count int
	ended time.Time
}

// answered notes that a job waits no more.
func (b *book) answered(j *job) {
	if _, ok := b.waiting[j]; j.try && ok {
		b.tried[j.cohort()] = tries{b.tried[j.cohort()].count - 1, time.Now()}
	}
	delete(b.waiting, j)
	if !j.passed.IsZero() && time.Now().After(j.passed) {
		b.diary.violate("I6", "somebody overtook %v, which came first and waited on", j)
	}
}

// checkArrival is the local half of I6: nobody overtakes a goroutine of the same process that still waits. Readers, and those who
// want permits, may be let in together and then come back in any order, but at the same time.
func (b *book) checkArrival(j *job) {
	if j.ticket == 0 {
		return
	}
	for other := range b.waiting {
		switch {
		case other.try, other.cohort() != j.cohort(), other.ticket == 0, other.ticket >= j.ticket,
			other.ctx.Err() != nil, j.worker.closing():
		case !(j.reads() && other.reads()) && j.permits == 0:
			b.diary.violate("I6", "%v overtook %v, which came first and still waits", j, other)
		case other.passed.IsZero():
			other.passed = time.Now()
		}
	}
}

// checkPlace is called when n is gone. A node that was never used goes only when nobody is left of those that it was
// made for: so whoever gives up takes nothing from the others, and the process keeps its place in the queue (I9).
func (b *book) checkPlace(n *node) {
	if len(b.plan.Troubles) > 0 || b.plan.Worn || !n.served.IsZero() {
		return
	}
	if tried := b.tried[n.cohort()]; tried.count > 0 || time.Since(tried.ended) < 40*b.plan.Latency { // it may be of one who tries
		return
	}
	sent := n.created.Add(-10 * b.plan.Latency) // before that: it was not made for somebody who had left by then
	var left *job
	for j := range b.waiting {
		switch {
		case j.try, j.cohort() != n.cohort():
		case n.reads() && !j.reads(): // whoever is first may write now, and it does not do
			return
		case j.since.Before(sent) && j.ctx.Err() == nil && !j.worker.closing():
			left = j
		}
	}
	if left != nil {
		b.diary.violate("I9", "%s is gone, for which %v has waited since before", short(n.path), left)
	}
}

// checkTokens is I8.
func (b *book) checkTokens(t *tenure) {
	if !t.node.revoked.IsZero() {
		return
	}
	lock := t.node.lock
	before, highest := b.writer[lock], b.highest[lock]
	if !t.reads {
		before, b.writer[lock] = highest, t
	}
	if highest == nil || t.token >= highest.token {
		b.highest[lock] = t
	}
	switch {
	case before == nil:
	case t.token < before.token:
		b.diary.violate("I8", "%v got token %d after %v got %d", t.job, t.token, before.job, before.token)
	case t.token == before.token && t.node != before.node:
		b.diary.violate("I8", "%v and %v got the same token %d", t.job, before.job, t.token)
	}
}

// checkPatience is I11. Faults can make any wait longer.
func (b *book) checkPatience(t *tenure) {
	n := t.node
	if !n.served.IsZero() {
		return
	}
	n.served = time.Now()
	if wait, due := n.served.Sub(n.created), b.due(n); len(b.plan.Troubles) == 0 && wait > due {
		b.diary.violate("I11", "%v waited %v for its turn with %s, at most %v are due", n.owner, wait, short(n.path), due)
	}
}

// due is the bound of I11: how long a node may wait for those that were ahead of it.
func (b *book) due(n *node) time.Duration {
	perFrame := 20 * b.plan.Latency
	due := perFrame
	between := time.Duration(0) // readers behind the last that does not read
	for _, a := range n.ahead { // as they were then: a writer may have been shared since
		// One section may begin at the end of the budget. Another one may run before it: the process looks for
		// contenders, and the budget begins, only when somebody waits for a hand-off, or reads.
		between += a.owner.handOff + 2*b.plan.maxSection() + handOver + perFrame
		if n.mode != second.Reading || a.mode != second.Reading {
			due, between = due+between, 0
		}
	}
	return due
}

// handOver is what a node may take to pass from process to process, besides the time its frames take.
const handOver = time.Millisecond
