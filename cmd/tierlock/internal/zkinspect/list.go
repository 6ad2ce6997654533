package zkinspect

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// List finds the locks at a path and below it. A lock is a node with contenders among its children, or a semaphore. List reads at most
// limit paths, level by level, with one read each, and it also reads the holder of each lock. For a semaphore it reads three more nodes,
// and it reads nothing below the semaphore. A path without children may belong to any program. If all is true, List also returns idle
// locks, provided that their content shows that tierlock created them. If the path does not exist, there are no locks.
func (r Reader) List(ctx context.Context, path string, limit int, all bool) (*inspect.Listing, error) {
	l := &inspect.Listing{Path: path, Locks: []inspect.Summary{}, Complete: true}
	if _, _, err := r.childrenOf(ctx, path); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	for level := []string{path}; len(level) > 0; {
		if left := limit - l.Looked; len(level) > left {
			l.Complete, level = false, level[:left]
		}
		l.Looked += len(level)
		below, err := r.listLevel(ctx, l, level, all)
		if err != nil {
			return nil, err
		}
		level = below
	}
	slices.SortFunc(l.Locks, func(a, b inspect.Summary) int { return cmp.Compare(a.Path, b.Path) })
	slices.Sort(l.Unreadable)
	return l, nil
}

// listLevel adds the locks of one level of paths to l. It returns the paths of the next level.
func (r Reader) listLevel(ctx context.Context, l *inspect.Listing, level []string, all bool) (below []string, err error) {
	var mu sync.Mutex // guards l and below
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, path := range level {
		group.Go(func() error {
			names, _, err := r.childrenOf(ctx, path)
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
			locks, others, err := r.summarize(ctx, path, names)
			if err == nil && all && len(names) == 0 {
				locks, err = r.idle(ctx, path)
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			l.Locks = append(l.Locks, locks...)
			for _, name := range others {
				if child := join(path, name); child != "/zookeeper" {
					below = append(below, child)
				}
			}
			return nil
		})
	}
	err = group.Wait()
	slices.Sort(below) // sorted, so that the result of a limit does not depend on the order of the answers
	return below, err
}

// idle returns a path without children, if tierlock has created the path, or has stored its number of permits there.
func (r Reader) idle(ctx context.Context, path string) ([]inspect.Summary, error) {
	content, _, err := r.contentOf(ctx, path)
	if err != nil || content != zkqueue.ContainerData && !strings.HasPrefix(content, zkqueue.PermitsMark) {
		return nil, err
	}
	return []inspect.Summary{{Path: path}}, nil
}

// summarize returns the locks at a path with these children. In others it returns the children below which there may be more locks.
func (r Reader) summarize(ctx context.Context, path string, children []string) (locks []inspect.Summary, others []string, err error) {
	queue, others := zkqueue.Parse(children)
	if len(queue) > 0 {
		lock := inspect.Summary{Path: path, Queue: len(queue)}
		for _, c := range Describe(queue, time.Now()) { // the state that the names show
			if c.State == inspect.Holds {
				lock.Holders++
			}
		}
		if lock.Holder, err = r.holder(ctx, path, queue); err != nil {
			return nil, nil, err
		}
		locks = append(locks, lock)
	}
	permits, _, err := r.count(ctx, path, others)
	if permits == nil || err != nil {
		return locks, others, err
	}
	turn, _, err := r.childrenOf(ctx, join(path, turnChild))
	if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) {
		return nil, nil, err
	}
	waiting, _ := zkqueue.Parse(turn)
	others = slices.DeleteFunc(others, ofSemaphore)
	return append(locks, inspect.Summary{Path: path, Queue: len(waiting), Permits: permits}), others, nil
}

// holder reads the first contender of a queue. If the holder was deleted in the meantime, it returns nil.
func (r Reader) holder(ctx context.Context, path string, queue []zkqueue.Contender) (*inspect.Contender, error) {
	read, err := r.contenderAt(ctx, path, queue[0])
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &Describe([]zkqueue.Contender{read}, time.Now())[0], nil
}
