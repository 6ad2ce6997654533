package redisserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Cluster is a Redis Cluster. It contains primaries, each with the same number of slots, and one replica of each primary. A replica
// replaces its primary after a call of Promote, or when the primary has been gone for long.
type Cluster struct {
	*child.Ensemble
	shards int
}

// slots is the number of slots of a cluster.
const slots = 16384

// StartCluster starts a cluster. It returns once all members agree that the cluster is ready, and the replicas are connected. Errors are
// those of [Start].
func StartCluster(ctx context.Context, shards int, cfg Config) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cfg.cluster = true
	e, err := start(ctx, 2*shards, cfg)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Ensemble: e.Ensemble, shards: shards}
	if err := c.form(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("redisserver: no cluster: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) form(ctx context.Context) error {
	first, port, err := net.SplitHostPort(c.Members[0].Addr())
	if err != nil {
		return err
	}
	for i, s := range c.Members {
		if i < c.shards {
			from, to := i*slots/c.shards, (i+1)*slots/c.shards-1
			if _, err := Ask(s.Addr(), "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to)); err != nil {
				return err
			}
		}
		// Each member gets a different epoch. Otherwise the members would first have to settle which one keeps the epoch.
		if _, err := Ask(s.Addr(), "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
		if _, err := Ask(s.Addr(), "CLUSTER", "MEET", first, port); err != nil {
			return err
		}
	}
	known := fmt.Sprintf("cluster_known_nodes:%d\r", len(c.Members))
	if err := c.await(ctx, known); err != nil {
		return err
	}
	for i := range c.shards {
		id, err := Ask(c.Members[i].Addr(), "CLUSTER", "MYID")
		if err != nil {
			return err
		}
		if _, err := Ask(c.Replica(i).Addr(), "CLUSTER", "REPLICATE", id[0]); err != nil {
			return err
		}
	}
	if err := child.Until(ctx, func() bool { return len(c.Followers()) == c.shards }); err != nil {
		return err
	}
	return c.await(ctx, "cluster_state:ok\r")
}

// The method await waits until each member's report about the cluster contains word.
func (c *Cluster) await(ctx context.Context, word string) error {
	var last string
	err := child.Until(ctx, func() bool {
		for _, s := range c.Members {
			info, err := Ask(s.Addr(), "CLUSTER", "INFO")
			if err != nil || !strings.Contains(info[0], word) {
				last = fmt.Sprintf("%s: %q, %v", s.Addr(), info, err)
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("%w: no %q: %s", err, word, last)
	}
	return nil
}

// Replica returns the replica that at first belongs to primary i. That primary is member i.
func (c *Cluster) Replica(i int) *Server { return c.Members[c.shards+i] }

// Promote makes a replica take over from its primary. If the primary is alive, it learns of that. Promote does not ask the other primaries.
// Their votes depend on what they know of the failure, and they do not vote again for a minute.
func (c *Cluster) Promote(ctx context.Context, replica *Server) error {
	if _, err := Ask(replica.Addr(), "CLUSTER", "FAILOVER", "TAKEOVER"); err != nil {
		return err
	}
	return child.Until(ctx, func() bool {
		mode, err := replica.Mode()
		return err == nil && mode == "leader"
	})
}
