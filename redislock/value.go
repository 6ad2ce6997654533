package redislock

import (
	"strconv"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// valued returns the script's arguments for saving a value. If the server may evict the value, valued logs a warning, but only once.
func (s *store) valued(c queue.Command) []any {
	if policy := s.evicting.Load(); policy != nil {
		s.warned.Do(func() {
			s.tier.Logger().Warn("redislock: the server may evict values of locks; set maxmemory-policy to noeviction or volatile-lru",
				"path", c.Path, "policy", policy)
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
