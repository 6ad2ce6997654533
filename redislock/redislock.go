package redislock

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/removal"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// New returns the locks of this process in the Redis of client: a [redis.Client], also one that follows Sentinels, or a
// [redis.ClusterClient]. The program keeps the client and closes it after the registry. If the client is closed first, every
// lock is lost at once.
//
// New waits until Redis has answered, or ctx is done, so give ctx a deadline. A wrong option is an error at once. If Redis cannot be
// reached, the error wraps the cause of ctx and names the address. If Redis refuses what every lock needs, the error names that, at once.
// After an error nothing is left. Once New has returned, the end of ctx has no effect.
//
// Caution: after a start or a fail-over of Redis no new lock is granted for one lease TTL, 15 s by default. Locks that the new primary
// knows stay held, others are lost. Without min-replicas-to-write two processes can have one lock after a fail-over. "Fail-over" in the
// documentation of this package has the details, and [WithNewServer] is for tests.
func New(ctx context.Context, client redis.UniversalClient, opts ...tier.RegistryOption) (*tier.Registry, error) {
	o, share, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	if err := checkClient(client); err != nil { // before there is anything to close
		return nil, err
	}
	t := open(client, o).tier
	if !o.Lazy {
		err = t.Ready(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	return tier.New(t, share...), nil
}

func checkClient(client redis.UniversalClient) error {
	single, _ := client.(*redis.Client)
	cluster, _ := client.(*redis.ClusterClient)
	if single == nil && cluster == nil {
		return fmt.Errorf("redislock: nil client, or one of type %T; want a *redis.Client or a *redis.ClusterClient", client)
	}
	return nil
}

func init() {
	removal.Of = func(ctx context.Context, client any, path, id string) (bool, error) {
		return remove(ctx, client.(redis.UniversalClient), path, id)
	}
}

func remove(ctx context.Context, client redis.UniversalClient, path, id string) (bool, error) {
	if err := cmp.Or(ValidatePath(path), checkClient(client)); err != nil {
		return false, err
	}
	ttl := micros(second.Defaults.TTL)
	removed, err := lockScript.run(ctx, client, keysOf(path), "remove", ttl, ttl, id, "", 0).StringSlice()
	if err != nil {
		return false, fmt.Errorf("redislock: remove %s from %s: %w", id, path, advise(err, patterns(path)...))
	}
	return len(removed) == 1 && removed[0] == "1", nil
}
