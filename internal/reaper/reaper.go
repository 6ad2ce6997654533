// Package reaper removes from a store what may have been left there: by a request without
// an answer, or because its removal failed. Exclusion never depends on it, only the
// progress of those who queue behind.
package reaper

import (
	"context"
	"sync"

	"github.com/tierlock/tierlock/internal/retry"
)

// A Reaper keeps at its items until each is certain to be gone, each for itself.
type Reaper[Item any] struct {
	config Config[Item]

	mu    sync.Mutex     // guards the field below
	items map[*Item]Item // as last tried
}

// A Config is what a reaper needs of a store.
type Config[Item any] struct {
	// Remove tries once, and reports whether the item is certain to be gone. It may note in
	// the item what it has learned.
	Remove func(*Item) bool
	// Await waits until the store can be reached. An error ends the reaper.
	Await func(context.Context) error
	// Spawn runs a goroutine, unless the store is closed: what is left then goes with the
	// session.
	Spawn func(func()) bool
	// Context ends with the store.
	Context context.Context
}

// New returns a reaper that has nothing to do.
func New[Item any](config Config[Item]) *Reaper[Item] {
	return &Reaper[Item]{config: config, items: make(map[*Item]Item)}
}

// Add leaves an item to the reaper.
func (r *Reaper[Item]) Add(item Item) {
	r.note(&item, false)
	r.config.Spawn(func() {
		for pace := retry.New(); ; {
			gone := r.config.Remove(&item)
			r.note(&item, gone)
			if gone || retry.Pause(r.config.Context, pace.NextBackOff()) != nil || r.config.Await(r.config.Context) != nil {
				return
			}
		}
	})
}

// note has others see what is known of an item.
func (r *Reaper[Item]) note(item *Item, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if gone {
		delete(r.items, item)
	} else {
		r.items[item] = *item
	}
}

// Count returns how many items there are.
func (r *Reaper[Item]) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.items)
}

// Find returns an item that is meant.
func (r *Reaper[Item]) Find(meant func(Item) bool) (found Item, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, item := range r.items {
		if meant(item) {
			return item, true
		}
	}
	return found, false
}

// maxItems is where new contenders have to wait for old ones to be removed.
const maxItems = 1024

// Room waits until the reaper is not overwhelmed, or returns the cause of ctx.
func (r *Reaper[Item]) Room(ctx context.Context) error {
	for pace := retry.New(); r.Count() >= maxItems; {
		if err := retry.Pause(ctx, pace.NextBackOff()); err != nil {
			return err
		}
	}
	return nil
}
