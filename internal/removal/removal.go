// Package removal has what the command of redislock needs, and programs do not.
package removal

import (
	"context"
)

// Of removes a contender from the queue for the lock at path, by the ID that [tier.Contender] says, and reports whether it
// was there. If the contender has the lock, the next one is granted it at once, although the process may
// still work under it. That hears of it with its next heartbeat, after a quarter of its TTL at most. An ID never comes again,
// so nobody else is hit, and Of can be called again when its answer is lost. Locks of other libraries have no ID.
//
// Package redislock sets it; its client is a redis.UniversalClient, which this module does not know.
var Of func(ctx context.Context, client any, path, id string) (bool, error)
