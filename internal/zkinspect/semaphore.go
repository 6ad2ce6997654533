package zkinspect

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/tierlock/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/zklock"
)

// The children of a semaphore's path: the lock under which permits are taken, and the permits.
const (
	turnChild   = "locks"
	leasesChild = "leases"
)

func ofSemaphore(child string) bool { return child == turnChild || child == leasesChild }

// permitsMark is how the content of a path begins that says how many permits there are.
const permitsMark = "tierlock permits="

// leaseNode is how the name of a permit's node ends. Other children take up permits all the same.
var leaseNode = regexp.MustCompile(`lease-\d{10}$`)

// count counts the permits at a path with these children, and lists their nodes; nil if there is no semaphore
// as far as can be seen. Any path can have a child called leases.
func count(ctx context.Context, client *zklock.Client, path string, children []string) (*inspect.Permits, []string, error) {
	if !slices.ContainsFunc(children, ofSemaphore) {
		return nil, nil, nil
	}
	content, err := contentOf(ctx, client, path)
	if err != nil {
		return nil, nil, err
	}
	nodes, _, err := client.Children(ctx, join(path, leasesChild))
	if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) {
		return nil, nil, err
	}
	number, marked := strings.CutPrefix(content, permitsMark)
	if !marked && !slices.ContainsFunc(nodes, leaseNode.MatchString) {
		return nil, nil, nil
	}
	all, _ := strconv.Atoi(number)
	return &inspect.Permits{All: max(all, 0), InUse: len(nodes)}, nodes, nil
}

// contentOf returns the content of a path, "" if it may not be read or is not there.
func contentOf(ctx context.Context, client *zklock.Client, path string) (string, error) {
	content, _, err := client.Get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		return "", nil
	}
	return string(content), err
}

// glanceAtSemaphore reads the permits in use and the queue for them, of which before is the last glance, nil if there is no
// semaphore. The nodes of the permits are not read.
func glanceAtSemaphore(ctx context.Context, client *zklock.Client, path string, children []string, before *inspect.Queue) (
	s *inspect.Semaphore, turn *inspect.Queue, nodes []string, err error) {
	permits, nodes, err := count(ctx, client, path, children)
	if permits == nil || err != nil {
		return nil, nil, nil, err
	}
	turn, _, err = glance(ctx, client, join(path, turnChild), before)
	if errors.Is(err, zk.ErrNoAuth) {
		turn, err = &inspect.Queue{Contenders: []inspect.Contender{}}, nil
	}
	if err != nil {
		return nil, nil, nil, err
	}
	for _, c := range turn.Holders() {
		c.State = inspect.Next
	}
	return &inspect.Semaphore{Permits: *permits, Shares: []inspect.Share{}, Queue: turn.Contenders}, turn, nodes, nil
}

// lookAtSemaphore reads all that is known of a semaphore, nil if there is none.
func lookAtSemaphore(ctx context.Context, client *zklock.Client, path string, children []string) (*inspect.Semaphore, error) {
	s, _, nodes, err := glanceAtSemaphore(ctx, client, path, children, nil)
	if s == nil || err != nil {
		return nil, err
	}
	leases, err := readLeases(ctx, client, join(path, leasesChild), nodes)
	s.InUse = len(leases)
	for _, c := range Describe(leases, time.Now()) {
		add(s, &c)
	}
	return s, err
}

// readLeases reads the nodes of permits that are still there, in the order in which they were taken.
func readLeases(ctx context.Context, client *zklock.Client, path string, nodes []string) ([]zklock.Contender, error) {
	leases := make([]zklock.Contender, len(nodes))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, node := range nodes {
		group.Go(func() (err error) {
			leases[i], err = client.Inspect(ctx, path, zklock.Contender{Node: node})
			if errors.Is(err, zk.ErrNoNode) {
				return nil
			}
			return err
		})
	}
	err := group.Wait()
	slices.SortFunc(leases, func(a, b zklock.Contender) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Node, b.Node))
	})
	return slices.DeleteFunc(leases, func(c zklock.Contender) bool { return c.Node == "" }), err
}

// add puts a permit into the share of its process.
func add(s *inspect.Semaphore, c *inspect.Contender) {
	for i := range s.Shares {
		if t := &s.Shares[i]; c.Readable && t.Session == c.Session && t.Host == c.Host && t.PID == c.PID && t.Label == c.Label && t.Content == c.Content {
			t.Count++
			t.Nodes = append(t.Nodes, c.Node)
			return
		}
	}
	s.Shares = append(s.Shares, inspect.Share{
		Count: 1, Nodes: []string{c.Node}, Readable: c.Readable, Session: c.Session, Ephemeral: c.Ephemeral, Since: c.Since, AgeMS: c.AgeMS,
		Host: c.Host, PID: c.PID, Label: c.Label, Content: c.Content,
	})
}
