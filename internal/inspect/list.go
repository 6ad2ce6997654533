package inspect

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/tierlock/tierlock/zklock"
)

// A Listing is the locks below a path, in the order of their paths.
type Listing struct {
	Path       string    `json:"path"`
	Locks      []Summary `json:"locks"`
	Looked     int       `json:"looked_at"`            // paths that were listed
	Complete   bool      `json:"complete"`             // else there is more below
	Unreadable []string  `json:"unreadable,omitempty"` // paths that may not be listed
}

// A Summary is a lock in a list.
type Summary struct {
	Path    string     `json:"path"`
	Holder  *Contender `json:"holder,omitempty"`
	Holders int        `json:"holders"`             // more than one if they read
	Queue   int        `json:"queue"`               // contenders, the holders among them; of a semaphore those that wait
	Permits *Permits   `json:"semaphore,omitempty"` // null if the path is no semaphore
}

// List finds the locks at a path and below it: nodes with contenders among their children, and
// semaphores. It lists at most so many paths, level by level, one read each, and reads the holder of
// each lock; for a semaphore it reads three nodes more, and nothing below that.
// With all it also returns those that have no child, where nobody queues now. A path that does not
// exist has no locks.
func List(ctx context.Context, client *zklock.Client, path string, limit int, all bool) (*Listing, error) {
	l := &Listing{Path: path, Locks: []Summary{}, Complete: true}
	if _, _, err := client.Children(ctx, path); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	for level := []string{path}; len(level) > 0; {
		if left := limit - l.Looked; len(level) > left {
			l.Complete, level = false, level[:left]
		}
		l.Looked += len(level)
		below, err := l.listLevel(ctx, client, level, all)
		if err != nil {
			return nil, err
		}
		level = below
	}
	slices.SortFunc(l.Locks, func(a, b Summary) int { return cmp.Compare(a.Path, b.Path) })
	slices.Sort(l.Unreadable)
	return l, nil
}

// listLevel lists some paths, and returns what is right below them.
func (l *Listing) listLevel(ctx context.Context, client *zklock.Client, level []string, all bool) (below []string, err error) {
	var mu sync.Mutex // guards l and below
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, path := range level {
		group.Go(func() error {
			names, _, err := client.Children(ctx, path)
			switch {
			case errors.Is(err, zk.ErrNoAuth):
				mu.Lock()
				defer mu.Unlock()
				l.Unreadable = append(l.Unreadable, path)
				return nil
			case errors.Is(err, zk.ErrNoNode):
				return nil
			case err != nil:
				return err
			}
			locks, others, err := summarize(ctx, client, path, names)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if l.Locks = append(l.Locks, locks...); all && len(names) == 0 {
				l.Locks = append(l.Locks, Summary{Path: path})
			}
			for _, name := range others {
				if child := join(path, name); child != "/zookeeper" {
					below = append(below, child)
				}
			}
			return nil
		})
	}
	err = group.Wait()
	slices.Sort(below) // so that what a limit leaves out does not depend on the order of answers
	return below, err
}

// summarize returns what is at a path with these children, and the children to look below.
func summarize(ctx context.Context, client *zklock.Client, path string, children []string) (locks []Summary, others []string, err error) {
	queue, others := zklock.ParseQueue(children)
	if len(queue) > 0 {
		lock := Summary{Path: path, Queue: len(queue)}
		for _, c := range Describe(queue, time.Now()) { // by their names
			if c.State == Holds {
				lock.Holders++
			}
		}
		if lock.Holder, err = first(ctx, client, path, queue); err != nil {
			return nil, nil, err
		}
		locks = append(locks, lock)
	}
	permits, _, err := count(ctx, client, path, others)
	if permits == nil || err != nil {
		return locks, others, err
	}
	turn, _, err := client.Children(ctx, join(path, turnChild))
	if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) {
		return nil, nil, err
	}
	waiting, _ := zklock.ParseQueue(turn)
	others = slices.DeleteFunc(others, ofSemaphore)
	return append(locks, Summary{Path: path, Queue: len(waiting), Permits: permits}), others, nil
}

// first reads the holder, nil if it has gone since.
func first(ctx context.Context, client *zklock.Client, path string, queue []zklock.Contender) (*Contender, error) {
	read, err := client.Inspect(ctx, path, queue[0])
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &Describe([]zklock.Contender{read}, time.Now())[0], nil
}
