package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/tierlock/tierlock/zklock"
)

// Permits are those of a semaphore: tierlock's, or Curator's InterProcessSemaphoreV2, which has the
// same layout, as has its InterProcessSemaphoreMutex with one permit.
type Permits struct {
	All   int `json:"permits,omitempty"` // 0 if the path does not say, as Curator's never does
	InUse int `json:"in_use"`
}

func (p Permits) String() string {
	if p.All == 0 {
		return permitsText(p.InUse) + " in use"
	}
	return fmt.Sprintf("%d of %d permits in use", p.InUse, p.All)
}

// A Semaphore is what is known of one.
type Semaphore struct {
	Permits
	Shares []Share     `json:"shares"` // of those in use
	Queue  []Contender `json:"queue"`  // for permits; the first takes some as soon as there are enough
}

// A Share is the permits that one process has, or one session of another library.
type Share struct {
	Count     int       `json:"count"`
	Nodes     []string  `json:"nodes"`    // one for each
	Readable  bool      `json:"readable"` // else what follows is unknown
	Session   string    `json:"session,omitempty"`
	Ephemeral bool      `json:"ephemeral"` // else they outlive their process
	Since     time.Time `json:"node_since,omitzero"`
	AgeMS     int64     `json:"node_age_ms"` // of the oldest node
	Host      string    `json:"host,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Label     string    `json:"label,omitempty"`
	Content   string    `json:"content,omitempty"`
}

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
func count(ctx context.Context, client *zklock.Client, path string, children []string) (*Permits, []string, error) {
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
	return &Permits{max(all, 0), len(nodes)}, nodes, nil
}

// contentOf returns the content of a path, "" if it may not be read or is not there.
func contentOf(ctx context.Context, client *zklock.Client, path string) (string, error) {
	content, _, err := client.Get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		return "", nil
	}
	return string(content), err
}

// lookAtSemaphore reads all that is known of a semaphore, nil if there is none.
func lookAtSemaphore(ctx context.Context, client *zklock.Client, path string, children []string) (*Semaphore, error) {
	permits, nodes, err := count(ctx, client, path, children)
	if permits == nil || err != nil {
		return nil, err
	}
	turn, _, err := glance(ctx, client, join(path, turnChild), nil)
	if errors.Is(err, zk.ErrNoAuth) {
		turn, err = &Queue{Contenders: []Contender{}}, nil
	}
	if err != nil {
		return nil, err
	}
	for _, c := range turn.Holders() {
		c.State = Next
	}
	s := &Semaphore{Permits: *permits, Shares: []Share{}, Queue: turn.Contenders}
	leases, err := readLeases(ctx, client, join(path, leasesChild), nodes)
	s.InUse = len(leases)
	for _, c := range Describe(leases, time.Now()) {
		s.add(&c)
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
func (s *Semaphore) add(c *Contender) {
	for i := range s.Shares {
		if t := &s.Shares[i]; c.Readable && t.Session == c.Session && t.Host == c.Host && t.PID == c.PID && t.Label == c.Label && t.Content == c.Content {
			t.Count++
			t.Nodes = append(t.Nodes, c.Node)
			return
		}
	}
	s.Shares = append(s.Shares, Share{
		Count: 1, Nodes: []string{c.Node}, Readable: c.Readable, Session: c.Session, Ephemeral: c.Ephemeral, Since: c.Since, AgeMS: c.AgeMS,
		Host: c.Host, PID: c.PID, Label: c.Label, Content: c.Content,
	})
}
