package tier

import (
	"context"
	"sync"

	"github.com/tierlock/tierlock/zklock"
)

// A Registry holds all locks of this process in one ensemble, over one connection. Use
// one per process and ensemble: a second one competes with the first like another
// process. It is safe for concurrent use.
type Registry struct {
	client  *zklock.Client
	options options

	mu      sync.Mutex // guards the fields below; taken last
	cohorts map[string]*cohort
	closed  bool
	tasks   sync.WaitGroup // goroutines of the cohorts
}

// Dial connects to the ensemble of servers ("host:port") and waits for a session until
// ctx is done; the error then tells why there was none. Bad servers or options fail at
// once.
func Dial(ctx context.Context, servers []string, opts ...zklock.Option) (*Registry, error) {
	client, err := zklock.Dial(ctx, servers, opts...)
	if err != nil {
		return nil, err
	}
	return New(client)
}

// New returns a registry over client, which belongs to it from now on: closing the
// registry closes the client. An error says which option is wrong; the client is then
// left alone.
func New(client *zklock.Client, opts ...Option) (*Registry, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	return &Registry{client: client, options: o, cohorts: make(map[string]*cohort)}, nil
}

// Close closes the connection. Every hold is lost, whoever waits gets [ErrClosed], and
// the nodes are deleted with the session. It leaves no goroutine, may be called again,
// and returns nil.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	err := r.client.Close()
	r.tasks.Wait()
	return err
}

// Mutex returns the lock at path. It is cheap and need not be closed; all mutexes of one
// path share one gate and one node. A path that cannot be a lock (see
// [zklock.ValidatePath]) is reported by the methods of the mutex.
func (r *Registry) Mutex(path string) *Mutex {
	lock, err := r.client.Lock(path)
	if err == nil {
		lock = lock.MayLinger(r.options.linger)
	}
	return &Mutex{registry: r, path: path, lock: lock, invalid: err, key: ownerKey{r, path}}
}

// join returns the cohort of path, which stays until as many calls of part.
func (r *Registry) join(path string) *cohort {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cohorts[path]
	if c == nil {
		c = &cohort{registry: r, path: path}
		r.cohorts[path] = c
	}
	c.members++
	return c
}

// spawn runs f for c, which stays until f ends. It reports false when the registry is
// closed.
func (r *Registry) spawn(c *cohort, f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	c.members++
	r.tasks.Go(func() {
		defer r.part(c)
		f()
	})
	return true
}

func (r *Registry) part(c *cohort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.members--; c.members == 0 {
		delete(r.cohorts, c.path)
	}
}

// lingering returns the node at path that nobody wants for the moment, nil if there is
// none.
func (r *Registry) lingering(path string) *zklock.Node {
	r.mu.Lock()
	c := r.cohorts[path]
	r.mu.Unlock()
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lingeringLocked()
}
