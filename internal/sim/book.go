package sim

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

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
	named    map[string]*node  // by path, all there ever were
	seconds  map[string]*node  // by the path of the second znode
	byToken  map[int64]*node
	queues   map[string][]*node   // live nodes by lock path, in order of creation
	tenures  map[*tenure]struct{} // not released yet
	waiting  map[*job]struct{}
	last     map[string]*tenure // granted last, by lock path
	fences   map[string]int64   // highest token, by register
	calmAt   time.Time          // when the latest fault cannot matter any more
	granted  int
}

// A node is a lock node on the server.
type node struct {
	path, lock string
	second     string // of a bridged process, the path of the znode for kazoo
	halved     bool   // second is gone
	token      int64
	owner      *worker
	session    int64
	created    time.Time
	ahead      []*worker // owners of the nodes before it at that time
	served     time.Time // when it was granted first
	gone       bool
	revoked    time.Time // when it was taken away by a fault that no lease covers, zero if it was not
}

// A tenure is what one call tree has from the grant to the beginning of the last release.
type tenure struct {
	job   *job
	node  *node
	token int64
	hold  *tier.Hold // the one that will be released last
}

func newBook(p Plan, d *diary) *book {
	return &book{
		plan: p, diary: d,
		sessions: make(map[int64]*worker),
		newest:   make(map[*worker]int64),
		ended:    make(map[int64]bool),
		named:    make(map[string]*node),
		seconds:  make(map[string]*node),
		byToken:  make(map[int64]*node),
		queues:   make(map[string][]*node),
		tenures:  make(map[*tenure]struct{}),
		waiting:  make(map[*job]struct{}),
		last:     make(map[string]*tenure),
		fences:   make(map[string]int64),
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

var lockNode = regexp.MustCompile(`^_c_[0-9a-f-]{36}-lock-\d{10}$`)

// lockOf returns the path of the lock that a node belongs to; ok is false if it is no lock node.
func lockOf(path string) (lock string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], lockNode.MatchString(path[i+1:])
}

// changed follows a transaction of the server.
func (b *book) changed(view zktest.View, changes []zktest.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var fresh []*node
	for _, c := range changes {
		_, ok := lockOf(c.Path)
		switch {
		case c.Kind == zktest.DataChanged:
			b.written(view, c)
		case secondZnode.MatchString(c.Path):
			b.secondChanged(c)
		case !ok:
			b.diary.note("server: %v %s", c.Kind, c.Path)
		case c.Kind == zktest.Created:
			fresh = append(fresh, b.created(c))
		case c.Kind == zktest.Deleted:
			b.deleted(c)
		}
	}
	for _, n := range fresh {
		b.checkSingle(n)
		b.checkPair(n)
	}
}

func (b *book) created(c zktest.Change) *node {
	lock, _ := lockOf(c.Path)
	n := &node{path: c.Path, lock: lock, token: c.Zxid, owner: b.sessions[c.Session], session: c.Session,
		created: time.Now()}
	b.diary.note("server: %s of %v created, czxid %d", short(n.path), n.owner, n.token)
	if b.named[n.path] != nil {
		b.diary.violate("I12", "the name %s was used before: a late delete could hit the wrong node", n.path)
	}
	for _, before := range b.queues[lock] {
		n.ahead = append(n.ahead, before.owner)
	}
	b.named[n.path], b.byToken[n.token] = n, n
	b.queues[lock] = append(b.queues[lock], n)
	return n
}

func (b *book) deleted(c zktest.Change) {
	n := b.named[c.Path]
	by := b.sessions[c.Session]
	b.diary.note("server: %s of %v deleted by %v", short(n.path), n.owner, by)
	b.queues[n.lock] = slices.DeleteFunc(b.queues[n.lock], func(o *node) bool { return o == n })
	n.gone = true
	if by == operator || b.ended[c.Session] {
		n.revoked = time.Now()
	} else if by != n.owner {
		b.diary.violate("I12", "%s of %v was deleted by %v", n.path, n.owner, by)
	}
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
		if other != n && other.owner == n.owner {
			b.diary.violate("I3", "%v has %s and %s in the queue, and nothing to clear up", n.owner, short(other.path), short(n.path))
		}
	}
}

// requested follows a request to the server.
func (b *book) requested(f *zktest.Frame) {
	_, ok := lockOf(f.Path)
	second := secondZnode.MatchString(f.Path)
	if !ok && !second || f.Op != zktest.OpDelete && f.Op != zktest.OpMulti {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	by := b.sessions[f.Session]
	n := b.named[f.Path]
	if second {
		n = b.seconds[f.Path]
	}
	if by != operator && (n == nil || n.owner != by) {
		b.diary.violate("I12", "%v asks to delete %s, which it did not create", by, f.Path)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// short is a node's name for the eye: what is unique about it, and its sequence number.
func short(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	if len(name) < 21 {
		return path
	}
	return name[3:7] + "…" + name[len(name)-10:]
}
