package zkinspect

import (
	"context"
	"time"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// Revoke asks the holders for the lock. It returns the holders in their state before the request; see [zkqueue.Path.Revoke].
func (r Reader) Revoke(ctx context.Context, path string) ([]inspect.Contender, error) {
	told, err := ask(ctx, r.Client, "revoke", path, func(p zkqueue.Path) ([]zkqueue.Contender, error) { return p.Revoke(ctx) })
	return Describe(told, time.Now()), err
}
