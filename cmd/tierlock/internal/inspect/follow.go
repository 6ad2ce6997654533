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

// A Follower polls the locks below a path. It sets no watches, because watches would report every change, however many there are. Therefore
// it does not see a hold that begins and ends between two reads. If the store counts holds, the Follower reports their number.
//
// Each poll glances at each lock. Every five seconds the Follower also lists the locks. In ZooKeeper, only the list shows that a holder was
// asked for its lock. For a semaphore, it reports how many permits each process has, and which processes wait. A Follower only reads.
type Follower struct {
	Reader Reader
	Path   string
	Every  time.Duration
	Limit  int // the highest number of paths to read

	queues   map[string]*Queue // the result of the last read of each lock
	searched time.Time
	complete bool
	trouble  string

	gracePeriod *tier.GracePeriodError
}

const (
	search   = 5 * time.Second // how often a Follower looks for new locks
	patience = 3 * time.Second // how long a Follower waits for an answer
	parallel = 16              // how many reads are in progress at the same time
)

// A Sight is the known state of the locks below a path.
type Sight struct {
	At       time.Time
	Queues   []*Queue // sorted by path; an empty queue belongs to a lock that was held recently
	Complete bool     // if it is false, there are more locks below the path
	Trouble  string   // why the state is not up to date; "" if it is
	Events   []Event  // the events since the last sight

	GracePeriod *tier.GracePeriodError // nil if the store grants locks
}

// Follow polls until ctx ends, and calls tell after each poll. All calls come from one goroutine. Follow continues after the loss of the
// connection and the session. It returns an error if the path may not be read.
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

// The method connection returns the events for the loss and the return of the connection.
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

// The method look updates the state of all locks. After an error it has updated none.
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

// find returns the paths to follow: the locks that have contenders, the locks that had contenders recently, and the path itself, because a
// process may soon queue there.
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
				return nil // this user may no longer read the lock
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
