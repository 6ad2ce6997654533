package zklock

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/go-zookeeper/zk"
)

// Permitted returns nil if the credentials of this client are enough to queue for the lock and to
// release it: CREATE, DELETE and READ on its path, or CREATE on the nearest node above while the
// path does not exist. An error that wraps [zk.ErrNoAuth] names the first that is missing.
//
// The server is asked by a transaction that cannot succeed, so nothing changes. Permitted waits
// for a server that cannot be reached until ctx is done; the error then wraps its cause.
func (l *Lock) Permitted(ctx context.Context) error {
	if _, err := ask(ctx, l.client, l.rehearse); err != nil {
		return fmt.Errorf("zklock: permissions for %s: %w", l.path, err)
	}
	return nil
}

// rehearse asks for all that it takes to queue, and for what cannot be behind it.
func (l *Lock) rehearse(context.Context) (none struct{}, err error) {
	for path := l.path; ; path = parentOf(path) {
		on := path
		if on == "" {
			on = "/"
		}
		try := path + "/" + newID() + "rehearsal"
		ops := []any{&zk.CreateRequest{Path: try, Acl: l.acl, Flags: zk.FlagEphemeral}}
		needs := []string{"CREATE"}
		if path == l.path {
			ops = append(ops, &zk.DeleteRequest{Path: try, Version: -1})
			needs = append(needs, "DELETE", "READ")
		}
		ops = append(ops, &zk.CheckVersionRequest{Path: on, Version: math.MaxInt32})
		results, err := l.client.link.Conn.Multi(ops...)
		if classify(err) == missing && path != "" {
			continue
		}
		return none, rehearsed(results, err, on, needs)
	}
}

// rehearsed reads the outcome of a rehearsal. What is asked for in the end is refused in any case.
func rehearsed(results []zk.MultiResponse, err error, path string, needs []string) error {
	for i, r := range results {
		switch {
		case r.Error == nil:
		case i < len(needs) && errors.Is(r.Error, zk.ErrNoAuth):
			return lacking(needs[i], path, zk.ErrNoAuth)
		case i == len(results)-1 && (errors.Is(r.Error, zk.ErrBadVersion) || errors.Is(r.Error, zk.ErrNoAuth)):
			return nil
		default:
			return r.Error
		}
	}
	return err
}

// Renewable reports whether the path can be made anew when its sequence numbers wear out: it is a
// container that this package made and nobody has changed since. It waits for a server that cannot
// be reached until ctx is done; the error then wraps its cause.
func (l *Lock) Renewable(ctx context.Context) (bool, error) {
	_, err := ask(ctx, l.client, func(context.Context) (*zk.Stat, error) { return l.client.container(parent{path: l.path}) })
	switch {
	case errors.Is(err, errNotOurs):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("zklock: look at %s: %w", l.path, err)
	}
	return true, nil
}
