package redislock

import (
	"context"
	_ "embed"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed first.lua
var firstText string

var firstScript = redis.NewScript(firstText)

// errUsed says that the server knows better than the program.
var errUsed = errors.New("WithNewServer: the server has a record of locks before this process, or was promoted, or has the data of another; leave the option out")

// declare notes the word of the program that nobody has used the primaries before, once, before they are met.
func (s *store) declare(ctx context.Context) error {
	var mu sync.Mutex // guards the variable below
	keys := []string{records + "longest", records + "first"}
	err := s.each(ctx, func(ctx context.Context, one *redis.Client) error {
		info, err := one.Info(ctx, "replication").Result()
		switch {
		case err != nil:
			return err
		case strings.Trim(field(info, "master_replid2"), "0") != "":
			return errUsed
		}
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, records+field(info, "master_replid"))
		return nil
	})
	if err != nil {
		return err
	}
	first, err := eval(ctx, s.client, firstScript, firstText, keys, micros(s.quarantine()), s.name).Bool()
	switch {
	case err != nil:
		return err
	case !first:
		return errUsed
	}
	s.declared.Store(true)
	return nil
}
