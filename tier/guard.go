package tier

import (
	"errors"
	"slices"
	"strings"

	"github.com/tierlock/tierlock/internal/second"
)

// A Guard is what a guarded write takes: a [*Hold], or a [*Bundle], all of whose locks it then checks in the transaction of the
// write. Guarded writes are zklock.Multi, etcdlock.Txn, pglock.Tx and redislock.Eval.
//
// A hold that belongs to a bundle, such as one that [HoldFrom] finds in the context of the bundle, guards with all locks of the bundle.
// To guard a write with one of them alone, acquire that again with the context of the bundle. A hold that is nil, as HoldFrom returns
// it, guards nothing: the error of the write wraps [ErrReleased].
type Guard interface {
	Err() error
	guard() (second.Guard, error)
}

// GuardOf returns the grants of a guard, for the packages of this module's stores. Programs have no use for it. The grants must not be
// released. The error says that the guard has no lock.
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
		return second.Guard{}, errors.New("a bundle without locks guards nothing")
	}
	g := second.Guard{Check: b.Err}
	var paths []string
	for _, h := range b.taken {
		if !slices.Contains(g.Grants, h.own.grant) { // else it was entered again
			g.Grants, paths = append(g.Grants, h.own.grant), append(paths, h.Path())
		}
	}
	g.Path = strings.Join(paths, ", ")
	return g, nil
}
