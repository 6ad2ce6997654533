package redislock

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Remove removes a contender from the queue for the lock at path, by the ID that [tier.Contender] says,
// and reports whether it was there. It is for operators: if the contender has the lock, the next one is
// granted it at once, although the process may still work under it. That hears of it with its next
// heartbeat, after a quarter of its TTL at most. An ID never comes again, so nobody else is hit, and
// Remove can be repeated when its answer is lost. Locks of other libraries have no ID.
func Remove(ctx context.Context, client redis.UniversalClient, path, id string) (bool, error) {
	err := checkClient(client)
	if err == nil {
		err = checkPath(path)
	}
	if err != nil {
		return false, fmt.Errorf("redislock: remove from %s: %w", path, err)
	}
	o, _, _ := newOptions(nil)
	removed, err := eval(ctx, client, script, text, keysOf(path), "remove", micros(o.ttl), micros(o.ttl), id, "", "1").StringSlice()
	if err != nil {
		return false, fmt.Errorf("redislock: remove %s from %s: %w", id, path, advise(err, patterns(path)...))
	}
	return len(removed) == 1 && removed[0] == "1", nil
}
