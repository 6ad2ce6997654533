// Package reaper removes from a store what may have been left there: by a request without
// an answer, or because its removal failed. Exclusion never depends on it, only the
// progress of those who queue behind.
package reaper

import (
	"context"
	"sync"

	"github.com/cenkalti/backoff/v4"

	"github.com/tierlock/tierlock/internal/retry"
)

// A Reaper keeps at its items until each is certain to be gone. It has a goroutine only
// while there are any.
type Reaper[Item any] struct {
	config Config[Item]

	mu      sync.Mutex // guards the fields below
	items   []Item
	working bool // a goroutine is at it
	hurry   bool // there is a new item
}

// A Config is what a reaper needs of a store.
type Config[Item any] struct {
	// Remove tries once, and reports whether the item is certain to be gone. It may note in
	// the item what it has learned.
	Remove func(*Item) bool
	// Await waits until the store can be reached. An error ends the reaper.
	Await func(context.Context) error
	// Spawn runs the goroutine, unless the store is closed: what is left then goes with the
	// session.
	Spawn func(func()) bool
	// Context ends with the store.
	Context context.Context
}

// New returns a reaper that has nothing to do.
func New[Item any](config Config[Item]) *Reaper[Item] { return &Reaper[Item]{config: config} }

// Add leaves an item to the reaper.
func (r *Reaper[Item]) Add(item Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(r.items, item)
	r.hurry = true
	if !r.working {
		r.working = r.config.Spawn(r.run)
	}
}

// Count returns how many items there are.
func (r *Reaper[Item]) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.items)
}

// Find returns the first item that is meant.
func (r *Reaper[Item]) Find(meant func(Item) bool) (Item, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, item := range r.items {
		if meant(item) {
			return item, true
		}
	}
	var none Item
	return none, false
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

func (r *Reaper[Item]) run() {
	for pace := retry.New(); r.sweep(pace); {
		if retry.Pause(r.config.Context, pace.NextBackOff()) != nil || r.config.Await(r.config.Context) != nil {
			return
		}
	}
}

// sweep tries each item once and reports whether there is more to do. New items do not
// wait for as long as old ones have to.
func (r *Reaper[Item]) sweep(pace backoff.BackOff) bool {
	r.mu.Lock()
	items := r.items
	if r.hurry {
		r.hurry = false
		pace.Reset()
	}
	r.mu.Unlock()
	var kept []Item
	for _, item := range items {
		if !r.config.Remove(&item) {
			kept = append(kept, item)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(kept, r.items[len(items):]...) // others were added meanwhile
	r.working = len(r.items) > 0
	return r.working
}
