package tier

import (
	"errors"
	"slices"
	"strings"

	"github.com/tierlock/tierlock/internal/second"
)

// A Guard protects a guarded write. A Guard is a [*Hold], or a [*Bundle] with all its locks. A guarded write is a transaction of the store
// that takes effect only while the locks are held. The guarded writes are zklock.Multi, etcdlock.Txn, pglock.Tx, mysqllock.Tx and
// redislock.Eval.
//
// If a hold belongs to a bundle, it guards the write with all locks of the bundle. To guard a write with only one of these locks, acquire
// that lock again with the context of the bundle. If the guard is a nil *Hold, as HoldFrom may return it, the write fails with an error
// that wraps [ErrReleased].
type Guard interface {
	Err() error
	guard() (second.Guard, error)
}

// GuardOf returns the grants of a guard. Only package slots and the packages of this module's stores call it. Do not release the grants.
// GuardOf returns an error if the guard holds no lock.
func GuardOf(guard Guard) (second.Guard, error) {
	if guard == nil {
		return second.Guard{}, ErrReleased
	}
	return guard.guard()
}

func (h *Hold) guard() (second.Guard, error) {
	if h == nil {
		return second.Guard{}, ErrReleased
	}
	if b := h.bundle.Load(); b != nil {
		return b.guard()
	}
	return second.Guard{Path: h.Path(), Grants: []second.Grant{h.own.grant}, Check: h.Err}, nil
}

func (b *Bundle) guard() (second.Guard, error) {
	switch {
	case b == nil:
		return second.Guard{}, ErrReleased
	case len(b.taken) == 0:
		return second.Guard{}, errors.New("a bundle without locks cannot guard a write")
	}
	g := second.Guard{Check: b.Err}
	var paths []string
	for _, h := range b.taken {
		if !slices.Contains(g.Grants, h.own.grant) { // otherwise the bundle has acquired this lock twice
			g.Grants, paths = append(g.Grants, h.own.grant), append(paths, h.Path())
		}
	}
	g.Path = strings.Join(paths, ", ")
	return g, nil
}
