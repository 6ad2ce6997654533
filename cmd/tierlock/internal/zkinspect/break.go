package zkinspect

import (
	"context"
	"time"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// Revoke asks those that have the lock to give it up, and returns them as they were before; see [zkqueue.Path.Revoke].
func (r Reader) Revoke(ctx context.Context, path string) ([]inspect.Contender, error) {
	told, err := ask(ctx, r.Client, "revoke", path, func(p zkqueue.Path) ([]zkqueue.Contender, error) { return p.Revoke(ctx) })
	return Describe(told, time.Now()), err
}

// Break deletes the node of the holder of the lock if its fencing token is the given one, whoever
// made it, and returns what it was, nil if nobody has the lock under that token. Of several that read it deletes the one
// with the token. The next contender is granted the lock
// at once, although the former holder may still work. That holder hears of it from its server,
// or T/6 after the grant if that is later.
//
// Nothing was deleted if the error wraps [zk.ErrNoAuth]. An answer that is lost is asked for again until ctx is done; if the node is
// gone by then, that is a success, although its owner may have deleted it. If ctx ends first, the
// outcome is unknown, and the node may still be deleted.
func (r Reader) Break(ctx context.Context, path string, token int64) (*inspect.Contender, error) {
	b := zkqueue.Breaking{Token: token}
	former, err := ask(ctx, r.Client, "break", path, func(p zkqueue.Path) (*zkqueue.Contender, error) { return b.Try(ctx, p) })
	if former == nil || err != nil {
		return nil, err
	}
	return &Describe([]zkqueue.Contender{*former}, time.Now())[0], nil
}
