package sim

import (
	"sync"
	"time"

	"github.com/tierlock/tierlock/tier"
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
	byToken  map[int64]*node
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
		byToken:  make(map[int64]*node),
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
