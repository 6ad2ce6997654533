package redislock

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/tier"
)

// New returns the locks of this process in the Redis of client: a [redis.Client], also one that
// follows Sentinels, or a [redis.ClusterClient]. The program keeps the client and closes it after
// the registry. If the client is closed first, every lock is lost at once.
//
// New does not wait for Redis, as it has no context to end that. Acquisitions do, and a try until it
// is known whether Redis can be reached. An error says which option is wrong; then nothing is left.
func New(client redis.UniversalClient, opts ...Option) (*tier.Registry, error) {
	o, share, err := newOptions(opts)
	if err == nil {
		err = checkClient(client)
	}
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	if err := tier.Check(share...); err != nil { // before there is anything to close
		return nil, err
	}
	return tier.New(open(client, o), share...)
}

func checkClient(client redis.UniversalClient) error {
	switch c := client.(type) {
	case *redis.Client:
		if c != nil {
			return nil
		}
	case *redis.ClusterClient:
		if c != nil {
			return nil
		}
	case nil:
	default:
		return fmt.Errorf("client of type %T; want a *redis.Client or a *redis.ClusterClient", client)
	}
	return errors.New("nil client")
}

// Eval runs a Lua script in Redis that takes effect only while the lock of hold is ours: an exact
// fence for data in the same Redis. The script is given keys and args as EVAL does it; in a cluster,
// the keys have to be in the slot of the lock, by a hash tag. It must return one value at most, and
// what it returns is the result: an int64, a string, a []any, or nil.
//
// Nothing was changed when the error wraps [tier.ErrLost] or [tier.ErrReleased], or ctx had ended
// before, or the lock is not one on Redis. An error of the script itself undoes nothing, as with
// EVAL. When the answer is lost, or does not come within a sixth of the lease TTL, or ctx ends first,
// the error wraps [tier.ErrUnknown]: the script may still run, but once at most, and never after the lock went to
// another process. Until the outcome is known the lock is not handed on within the process either; if
// it never is known, the lock leaves the process with the release.
//
// The scripts of one hold, and of those it is handed to within the process, run one after the other.
func Eval(ctx context.Context, hold *tier.Hold, script string, keys []string, args ...any) (any, error) {
	c, ok := hold.Grant().(*contender)
	if !ok {
		return nil, fmt.Errorf("redislock: script under %s: that lock is not on Redis", hold.Path())
	}
	result, err := c.eval(ctx, hold.Err, script, keys, args)
	if err != nil {
		return nil, fmt.Errorf("redislock: script under %s: %w", hold.Path(), err)
	}
	return result, nil
}
