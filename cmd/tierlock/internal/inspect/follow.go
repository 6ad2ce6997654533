package inspect

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tierlock/tierlock/tier"
)

// A Follower polls the locks below a path. It sets no watches, because these would report every change, however many there are. A hold
// that begins and ends between two reads is therefore not seen; if the store counts holds, their number is.
//
// Each poll glances at each lock. Every five seconds it also lists the locks. In ZooKeeper, only that shows that a holder was asked for
// its lock. For a semaphore it follows how many permits each process has, and which processes wait. It writes nothing.
type Follower struct {
	Reader Reader
	Path   string
	Every  time.Duration
	Limit  int // of the paths to look at

	queues   map[string]*Queue // the last look at each lock
	searched time.Time
	complete bool
	trouble  string

	gracePeriod *tier.GracePeriodError
}

const (
	search   = 5 * time.Second // how often a Follower looks for locks that are new
	patience = 3 * time.Second // how long it waits for an answer
	parallel = 16              // how many reads are under way at a time
)

// A Sight is what is known about the locks below a path.
type Sight struct {
	At       time.Time
	Queues   []*Queue // by path; empty ones have been held not long ago
	Complete bool     // else there are more locks below
	Trouble  string   // why there is nothing newer, "" if it is new
	Events   []Event  // since the last sight

	GracePeriod *tier.GracePeriodError // nil if the store grants locks
}

// Follow calls tell after each poll, from one goroutine, until ctx is done. Follow continues after the loss of the connection and the
// session. Follow returns an error if the path may not be read.
func (f *Follower) Follow(ctx context.Context, tell func(Sight)) error {
	f.queues = make(map[string]*Queue)
	f.complete = true
	again := time.NewTicker(f.Every)
	defer again.Stop()
	for {
		events, err := f.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
			return err
		}
		events = append(f.connection(err), events...)
		tell(Sight{
			At: time.Now(), Queues: f.sorted(), Complete: f.complete, Trouble: f.trouble, Events: events, GracePeriod: f.gracePeriod,
		})
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *Follower) sorted() []*Queue {
	return slices.SortedFunc(maps.Values(f.queues), func(a, b *Queue) int { return cmp.Compare(a.Path, b.Path) })
}

// connection returns the events for the loss and the return of the connection.
func (f *Follower) connection(err error) []Event {
	before := f.trouble
	f.trouble = ""
	if err != nil {
		f.trouble = err.Error()
	}
	switch {
	case before == "" && err != nil:
		return []Event{{Time: time.Now(), What: Disconnected, Text: f.trouble}}
	case before != "" && err == nil:
		return []Event{{Time: time.Now(), What: Connected}}
	}
	return nil
}

// look updates everything that is known, or nothing.
func (f *Follower) look(ctx context.Context) ([]Event, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	paths := slices.Collect(maps.Keys(f.queues))
	if time.Since(f.searched) >= search {
		found, err := f.find(ctx)
		if err != nil {
			return nil, err
		}
		paths = found
	}
	fresh, err := f.visit(ctx, paths)
	if err != nil {
		return nil, err
	}
	events := f.inGracePeriod(fresh)
	for _, path := range slices.Sorted(maps.Keys(fresh)) {
		events = append(events, changes(f.queues[path], fresh[path])...)
	}
	f.queues = fresh
	return events, nil
}

// inGracePeriod returns the events for the beginning and the end of a grace period.
func (f *Follower) inGracePeriod(fresh map[string]*Queue) []Event {
	before := f.gracePeriod
	f.gracePeriod = nil
	for _, q := range fresh {
		if q.GracePeriod != nil {
			f.gracePeriod = q.GracePeriod
		}
	}
	switch {
	case before == nil && f.gracePeriod != nil:
		return []Event{{Time: time.Now(), What: GracePeriod, Text: f.gracePeriod.Error()}}
	case before != nil && f.gracePeriod == nil:
		return []Event{{Time: time.Now(), What: Granting}}
	}
	return nil
}

// find returns the paths to follow: locks with contenders, locks that had some a moment ago, and the path itself, where a process may
// soon queue.
func (f *Follower) find(ctx context.Context) ([]string, error) {
	paths := make(map[string]bool)
	if f.Path != "/" {
		paths[f.Path] = true
	}
	for path, q := range f.queues {
		if len(q.Contenders) > 0 || q.Semaphore != nil {
			paths[path] = true
		}
	}
	list, err := f.Reader.List(ctx, f.Path, f.Limit, false)
	if err != nil {
		return nil, err
	}
	f.complete = list.Complete
	for _, l := range list.Locks {
		paths[l.Path] = true
		if h := f.queues[l.Path].Holder(); h != nil && l.Holder != nil && h.Node == l.Holder.Node && !h.Asked && l.Holder.Asked {
			f.queues[l.Path].Stale = true
		}
	}
	f.searched = time.Now()
	return slices.Collect(maps.Keys(paths)), nil
}

func (f *Follower) visit(ctx context.Context, paths []string) (map[string]*Queue, error) {
	var mu sync.Mutex // guards fresh
	fresh := make(map[string]*Queue)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, path := range paths {
		before := f.queues[path]
		group.Go(func() error {
			q, err := f.Reader.Glance(ctx, path, before)
			if refusal := (*Refusal)(nil); errors.As(err, &refusal) && path != f.Path {
				return nil // no longer ours to see
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			fresh[path] = q
			return nil
		})
	}
	return fresh, group.Wait()
}
