package command

import (
	"context"
	"slices"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
)

// A RegistryDesk is the desk of a store whose registry shows all contenders.
type RegistryDesk struct {
	inspect.Registry
	// Find adds findings about a lock path by the rules of this store.
	Find func(ctx context.Context, report *inspect.Report) error
}

// Revoke sends the request through the registry, which does not return the holders. Revoke therefore reads the queue before and after. It
// returns the holders that have a request afterwards, and the holders that have left in the meantime.
func (d RegistryDesk) Revoke(ctx context.Context, path string) ([]inspect.Contender, error) {
	before, err := d.Look(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := d.Locks.Mutex(path).Revoke(ctx); err != nil {
		return nil, err
	}
	after, err := d.Look(ctx, path)
	if err != nil {
		return nil, err
	}
	var asked []inspect.Contender
	for _, c := range before.Holders() {
		now := slices.IndexFunc(after.Contenders, func(a inspect.Contender) bool { return a.Node == c.Node && a.Token == c.Token })
		if now < 0 || after.Contenders[now].Asked {
			asked = append(asked, *c)
		}
	}
	return asked, nil
}

// Examine returns a report with all findings.
func (d RegistryDesk) Examine(ctx context.Context, path string) (*inspect.Report, error) {
	return d.Registry.Examine(ctx, path, d.Find)
}
