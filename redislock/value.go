package redislock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// unread stands for the maxmemory-policy of a server that does not show it.
const unread = "unknown"

// evicts returns the maxmemory-policy of a server that may evict values, unread if the server does not show its policy, and "" if it evicts
// no values. It logs a warning if the server may evict locks. It asks INFO, because many users may not do CONFIG GET.
func (s *store) evicts(ctx context.Context, one *redis.Client) (string, error) {
	info := one.InfoMap(ctx, "memory")
	if outcome := outcomeOf(info.Err()); outcome != queue.Done && outcome != queue.Denied {
		return "", info.Err()
	}
	policy := info.Item("Memory", "maxmemory_policy")
	switch {
	case policy == "":
		return unread, nil
	case policy == "noeviction", info.Item("Memory", "maxmemory") == "0":
		return "", nil
	}
	s.tier.Logger().Warn("redislock: maxmemory-policy is not noeviction; the server may evict locks", "policy", policy)
	if strings.HasPrefix(policy, "allkeys") {
		return policy, nil
	}
	return "", nil // other policies evict only keys that expire
}

// worse returns the worse of two results of [store.evicts].
func worse(a, b string) string {
	if a == "" || a == unread && b != "" {
		return b
	}
	return a
}

// mayEvict returns an error if a server has shown a policy with which it may evict values.
func (s *store) mayEvict() error {
	policy, _ := s.evicting.Load().(string)
	if policy == "" || policy == unread {
		return nil
	}
	return fmt.Errorf("%s may evict values of locks, because its maxmemory-policy is %s; set it to noeviction or volatile-lru, and restart "+
		"this program", s.where, policy)
}

// valued returns the script's arguments for saving a value. If the server may evict the value, or does not show its policy, valued logs a
// warning, but only once.
func (s *store) valued(c queue.Command) []any {
	if policy, _ := s.evicting.Load().(string); policy != "" {
		s.warned.Do(func() {
			line := "redislock: the server may evict values of locks; set maxmemory-policy to noeviction or volatile-lru"
			if policy == unread {
				line = "redislock: the server does not show its maxmemory-policy; " +
					"if the policy begins with allkeys, the server may evict values of locks"
			}
			s.tier.Logger().Warn(line, "path", c.Path, "policy", policy)
		})
	}
	if c.Data == nil {
		return []any{c.Turn, "", "forget"}
	}
	return []any{c.Turn, c.Data, "keep"}
}

// valueIn returns the value in an answer of the script.
func valueIn(words []string) (*second.Value, error) {
	token, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return nil, err
	}
	saved, err := strconv.ParseInt(words[1], 10, 64)
	return &second.Value{Data: []byte(words[2]), Token: token, Saved: time.UnixMicro(saved)}, err
}
