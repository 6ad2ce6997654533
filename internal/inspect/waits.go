package inspect

import (
	"cmp"

	"github.com/tierlock/tierlock/zklock"
)

// A sort of contender is its kind, and whether it has a second node that kazoo sees.
type sort struct {
	kind zklock.Kind
	pair bool
}

func sortOf(c zklock.Contender) sort { return sort{c.Kind, c.Pair != ""} }

func (s sort) String() string {
	if s.pair {
		return kindName(s.kind) + " WithKazoo"
	}
	return kindName(s.kind)
}

// kindName says of whose read/write lock the sides are.
func kindName(kind zklock.Kind) string {
	if kind == zklock.KindRead || kind == zklock.KindWrite {
		return "curator-" + string(kind)
	}
	return string(kind)
}

func (s sort) compare(other sort) int { return cmp.Compare(s.String(), other.String()) }

// mutex reports whether the names of a sort are those that Curator's mutex looks for.
func (s sort) mutex() bool {
	switch s.kind {
	case zklock.KindTierlock, zklock.KindZKLock, zklock.KindCurator, zklock.KindMutex:
		return true
	}
	return false
}

// kazoo reports whether kazoo's locks look for the names of a sort, however they are set up.
func (s sort) kazoo() bool { return s.pair || s.kind == zklock.KindKazoo }

// A verdict is whether one contender waits for another that is ahead of it.
type verdict int

const (
	no verdict = iota
	perhaps
	yes
)

// waitsFor is the table of docs/interop.md, as far as names tell. They do not tell kazoo's Lock
// from its WriteLock, nor whether it has extra_lock_patterns.
func (s sort) waitsFor(other sort) verdict {
	switch s.kind {
	case zklock.KindTierlock, zklock.KindZKLock:
		return yes
	case zklock.KindCurator:
		return sure(other.mutex())
	case zklock.KindMutex: // a library that nobody here knows
		if other.mutex() {
			return yes
		}
		return perhaps
	case zklock.KindWrite:
		return sure(other.kind == zklock.KindWrite || other.kind == zklock.KindRead)
	case zklock.KindRead:
		return sure(other.kind == zklock.KindWrite)
	case zklock.KindKazoo, zklock.KindKazooRead:
		switch {
		case other.kazoo():
			return yes
		case other.mutex(), s.kind == zklock.KindKazoo && other.kind == zklock.KindKazooRead:
			return perhaps
		}
	}
	return no
}

func sure(waits bool) verdict {
	if waits {
		return yes
	}
	return no
}

// shared reports whether two sorts are meant to hold at the same time, as readers are.
func shared(a, b sort) bool {
	return a.kind == b.kind && (a.kind == zklock.KindRead || a.kind == zklock.KindKazooRead)
}
