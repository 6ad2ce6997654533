package tier

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Shutdown ends the work of the registry in good order: whoever waits and whoever comes gets
// [ErrClosed]; owners may finish, and enter again with the contexts of their holds; when the last
// hold is released, the registry is closed.
//
// Owners are not told. End first what holds a lock until it is told to end, such as a campaign of
// package election.
//
// If ctx ends first, the registry is closed all the same and the holds that are left are lost; the
// error then wraps the cause of ctx and names their locks. Call it once; Close may be called at any
// time.
func (r *Registry) Shutdown(ctx context.Context) error {
	drained := r.drain()
	var err error
	select {
	case <-drained:
	case <-r.second.Done():
	case <-ctx.Done():
		err = fmt.Errorf("tier: shutdown: still in use: %s: %w", strings.Join(r.paths(), ", "), context.Cause(ctx))
	}
	if closed := r.Close(); err == nil {
		err = closed
	}
	return err
}

// draining reports whether nothing new may begin. The registry's mutex is held.
func (r *Registry) draining() bool { return r.drained != nil }

// drain turns everybody away who has no hold, and returns a channel that is closed when nobody is
// left.
func (r *Registry) drain() <-chan struct{} {
	r.mu.Lock()
	first := !r.draining()
	if first {
		r.drained = make(chan struct{})
		r.noteDrained()
	}
	drained := r.drained
	cohorts, pools := slices.Collect(maps.Values(r.cohorts)), slices.Collect(maps.Values(r.pools))
	r.mu.Unlock()
	if first {
		for _, c := range cohorts {
			c.drain()
		}
		for _, p := range pools {
			p.drain()
		}
	}
	return drained
}

// noteDrained is called when cohorts and pools may have become none. The registry's mutex is held.
func (r *Registry) noteDrained() {
	if r.draining() && len(r.cohorts) == 0 && len(r.pools) == 0 {
		select {
		case <-r.drained:
		default:
			close(r.drained)
		}
	}
}

// paths returns those of the locks and semaphores that somebody still has a stake in.
func (r *Registry) paths() (paths []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.cohorts {
		paths = append(paths, key.path)
	}
	for path := range r.pools {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// drain turns the waiters away, those as well who are about to come, and keeps the grant for
// nobody but its owner.
func (c *cohort) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	c.refuseAllLocked(c.failure("acquire", ErrClosed))
	if c.quit != nil {
		c.quit()
	}
	if grant := c.lingeringLocked(); grant != nil {
		c.passOnLocked(grant, resumption)
	}
}
