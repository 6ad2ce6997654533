package redislock

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// usualLag is what Redis has for min-replicas-max-lag unless told otherwise.
const usualLag = 10 * time.Second

// rounding is for how long after the lag a primary may still take writes: it counts whole seconds of
// its clock, and does so once a second.
const rounding = 2 * time.Second

// quarantine is how long nobody gets a lock from a primary that is a new one: until what the old one
// has granted is over, or been renewed for the last time, if that one does not know that it was
// replaced, and ceases to take writes once it misses its replicas.
func (s *store) quarantine() time.Duration {
	return s.options.ttl + time.Duration(s.lag.Load())
}

// examine asks what a server is like, of a cluster each primary, and meets it. It warns of what breaks
// promises.
func (s *store) examine(ctx context.Context) error {
	var mu sync.Mutex // guards the variable below
	longest := time.Duration(0)
	err := s.each(ctx, func(ctx context.Context, one *redis.Client) error {
		lag, err := s.examineOne(ctx, one)
		mu.Lock()
		defer mu.Unlock()
		longest = max(longest, lag)
		return err
	})
	if err != nil {
		return err
	}
	s.lag.Store(int64(longest))
	if s.options.newServer && !s.declared.Load() {
		if err := s.declare(ctx); err != nil {
			return err
		}
	}
	return s.each(ctx, s.meetAt)
}

// each does something at the primary, in a cluster at each of them.
func (s *store) each(ctx context.Context, do func(context.Context, *redis.Client) error) error {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, do)
	}
	return do(ctx, s.client.(*redis.Client))
}

// examineOne checks that the server allows what is needed, and returns for how long a primary that was replaced may still take writes, as far as that is
// bounded.
func (s *store) examineOne(ctx context.Context, one *redis.Client) (lag time.Duration, err error) {
	if err := s.permitted(ctx, one); err != nil {
		return 0, err
	}
	info, err := one.Info(ctx, "replication").Result()
	if err != nil {
		return 0, err
	}
	config, err := one.ConfigGet(ctx, "m*").Result()
	switch classify(err) {
	case done:
	case permanent: // as with most of those who run Redis for others
		s.options.logger.Info("redislock: the configuration of the server cannot be read", "err", err)
		return usualLag + rounding, nil
	default:
		return 0, err
	}
	if policy := config["maxmemory-policy"]; config["maxmemory"] != "0" && policy != "noeviction" {
		s.options.logger.Warn("redislock: maxmemory-policy is not noeviction: locks may be evicted", "policy", policy)
	}
	if writers := cmp.Or(config["min-replicas-to-write"], config["min-slaves-to-write"], "0"); writers == "0" {
		if replicas := field(info, "connected_slaves"); replicas != "0" {
			s.options.logger.Warn("redislock: min-replicas-to-write is 0: a primary that is cut off from its replicas, and replaced, goes on granting locks",
				"replicas", replicas)
		}
		return 0, nil
	}
	seconds, _ := strconv.Atoi(cmp.Or(config["min-replicas-max-lag"], config["min-slaves-max-lag"]))
	return time.Duration(seconds)*time.Second + rounding, nil
}

// field returns a field of the answer to INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
