package zkinspect

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// These are the children of a semaphore's path. A process holds the lock turnChild while it takes permits, and the permits are the children
// of leasesChild.
const (
	turnChild   = "locks"
	leasesChild = "leases"
)

func ofSemaphore(child string) bool { return child == turnChild || child == leasesChild }

// leaseNode matches the end of the name of a permit's node. Children with other names use up permits, too.
var leaseNode = regexp.MustCompile(`lease-\d{10}$`)

// count counts the permits at a path with these children, and lists their nodes. If no semaphore is visible there, count returns nil. Any
// path may have a child that is called leases.
func (r Reader) count(ctx context.Context, path string, children []string) (*inspect.Permits, []string, error) {
	if !slices.ContainsFunc(children, ofSemaphore) {
		return nil, nil, nil
	}
	content, _, err := r.contentOf(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	nodes, _, err := r.childrenOf(ctx, join(path, leasesChild))
	if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) {
		return nil, nil, err
	}
	number, marked := strings.CutPrefix(content, zkqueue.PermitsMark)
	if !marked && !slices.ContainsFunc(nodes, leaseNode.MatchString) {
		return nil, nil, nil
	}
	all, _ := strconv.Atoi(number)
	return &inspect.Permits{All: max(all, 0), InUse: len(nodes)}, nodes, nil
}

// contentOf returns the content and the stat of a path. If the path may not be read or does not exist, the content is "".
func (r Reader) contentOf(ctx context.Context, path string) (string, zk.Stat, error) {
	n, err := r.nodeAt(ctx, path)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		err = nil
	}
	return string(n.data), n.stat, err
}

// glanceAtSemaphore reads the holders of permits and their queue. The parameter before has the results of the last glance. If there is no
// semaphore, glanceAtSemaphore returns nil.
func (r Reader) glanceAtSemaphore(ctx context.Context, path string, children []string, before memory) (*inspect.Semaphore, memory, error) {
	permits, nodes, err := r.count(ctx, path, children)
	if permits == nil || err != nil {
		return nil, memory{}, err
	}
	turn, _, err := r.glance(ctx, join(path, turnChild), before.turn)
	if errors.Is(err, zk.ErrNoAuth) {
		turn, err = &inspect.Queue{Contenders: []inspect.Contender{}}, nil
	}
	if err != nil {
		return nil, memory{}, err
	}
	for _, c := range turn.Holders() {
		c.State = inspect.Next
	}
	leases, err := r.readLeases(ctx, join(path, leasesChild), nodes, before.leases)
	if err != nil {
		return nil, memory{}, err
	}
	permits.InUse = len(leases)
	s := &inspect.Semaphore{Permits: *permits, Shares: []inspect.Share{}, Queue: turn.Contenders}
	for _, c := range Describe(leases, time.Now()) {
		s.Add(&c, 1)
	}
	return s, memory{turn: turn, leases: leases}, nil
}

// readLeases reads the nodes of permits that are not in before. It returns all nodes that still exist, in the order in which the permits
// were taken.
func (r Reader) readLeases(ctx context.Context, path string, nodes []string, before []zkqueue.Contender) ([]zkqueue.Contender, error) {
	known := make(map[string]zkqueue.Contender)
	for _, c := range before {
		known[c.Node] = c
	}
	leases := make([]zkqueue.Contender, len(nodes))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, node := range nodes {
		if c, ok := known[node]; ok {
			leases[i] = c
			continue
		}
		group.Go(func() (err error) {
			leases[i], err = r.contenderAt(ctx, path, zkqueue.Contender{Node: node})
			if errors.Is(err, zk.ErrNoNode) {
				return nil
			}
			return err
		})
	}
	err := group.Wait()
	slices.SortFunc(leases, zkqueue.ByToken)
	return slices.DeleteFunc(leases, func(c zkqueue.Contender) bool { return c.Node == "" }), err
}
