package zkinspect

import (
	"cmp"

	"github.com/tierlock/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/zklock"
)

// A sort of contender is its kind, and whether it has a second node that kazoo sees.
type sort struct {
	kind zklock.Kind
	pair bool
}

func sortOf(c *inspect.Contender) sort { return sort{zklock.Kind(c.Kind), c.Pair != ""} }

func (s sort) String() string {
	name := inspect.Contender{Kind: string(s.kind)}.KindName()
	if s.pair {
		return name + " WithKazoo"
	}
	return name
}

func (s sort) compare(other sort) int { return cmp.Compare(s.String(), other.String()) }

// ours reports whether a kind is tierlock's.
func ours(kind zklock.Kind) bool {
	return kind == zklock.KindTierlock || kind == zklock.KindTierlockWrite || kind == zklock.KindTierlockRead
}

// mutex reports whether the names of a sort are those that Curator's mutex looks for.
func (s sort) mutex() bool {
	switch s.kind {
	case zklock.KindTierlock, zklock.KindZKLock, zklock.KindCurator, zklock.KindMutex:
		return true
	}
	return false
}

// kazoo reports whether kazoo's locks look for the names of a sort, however they are set up.
func (s sort) kazoo() bool {
	return s.pair && s.kind != zklock.KindTierlockRead || s.kind == zklock.KindKazoo
}

// kazooRead reports whether kazoo's WriteLock alone does.
func (s sort) kazooRead() bool {
	return s.pair && s.kind == zklock.KindTierlockRead || s.kind == zklock.KindKazooRead
}

// curatorWrite and curatorRead report whether the names of a sort are those of the sides of
// Curator's read/write lock.
func (s sort) curatorWrite() bool {
	return s.kind == zklock.KindWrite || s.kind == zklock.KindTierlockWrite
}

func (s sort) curatorRead() bool {
	return s.kind == zklock.KindRead || s.kind == zklock.KindTierlockRead
}

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
	case zklock.KindTierlock, zklock.KindTierlockWrite, zklock.KindZKLock:
		return yes
	case zklock.KindTierlockRead:
		return sure(!other.kind.Reads())
	case zklock.KindCurator:
		return sure(other.mutex())
	case zklock.KindMutex: // a library that nobody here knows
		if other.mutex() {
			return yes
		}
		return perhaps
	case zklock.KindWrite:
		return sure(other.curatorWrite() || other.curatorRead())
	case zklock.KindRead:
		return sure(other.curatorWrite())
	case zklock.KindKazoo, zklock.KindKazooRead:
		switch {
		case other.kazoo():
			return yes
		case other.mutex(), s.kind == zklock.KindKazoo && other.kazooRead():
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
	either := a.kind == zklock.KindTierlockRead || b.kind == zklock.KindTierlockRead
	return a.kind.Reads() && b.kind.Reads() && (either || a.kind == b.kind)
}
