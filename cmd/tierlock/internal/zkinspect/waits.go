package zkinspect

import (
	"cmp"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// A sort is a kind of contender, together with the fact whether the contender has a second node for kazoo.
type sort struct {
	kind zkqueue.Kind
	pair bool
}

func sortOf(c *inspect.Contender) sort { return sort{zkqueue.Kind(c.Kind), c.Pair != ""} }

func (s sort) String() string {
	name := inspect.Contender{Kind: string(s.kind)}.KindName()
	if s.pair {
		return name + " WithKazoo"
	}
	return name
}

func (s sort) compare(other sort) int { return cmp.Compare(s.String(), other.String()) }

// The function ours reports whether contenders of this kind come from tierlock.
func ours(kind zkqueue.Kind) bool {
	return kind == kindTierlock || kind == kindTierlockWrite || kind == kindTierlockRead
}

// The method mutex reports whether Curator's mutex recognizes the names of this sort.
func (s sort) mutex() bool {
	switch s.kind {
	case kindTierlock, kindZKLock, kindCurator, zkqueue.KindMutex:
		return true
	}
	return false
}

// The method kazoo reports whether all of kazoo's locks recognize the names of this sort, whatever their settings are.
func (s sort) kazoo() bool {
	return s.pair && s.kind != kindTierlockRead || s.kind == zkqueue.KindKazoo
}

// kazooRead reports whether, of kazoo's locks, only WriteLock recognizes the names of this sort.
func (s sort) kazooRead() bool {
	return s.pair && s.kind == kindTierlockRead || s.kind == zkqueue.KindKazooRead
}

// curatorWrite and curatorRead report whether the names of this sort are those of a writer or a reader of Curator's read/write lock.
func (s sort) curatorWrite() bool {
	return s.kind == zkqueue.KindWrite || s.kind == kindTierlockWrite
}

func (s sort) curatorRead() bool {
	return s.kind == zkqueue.KindRead || s.kind == kindTierlockRead
}

// sort.reads reports whether contenders of this sort share the lock with readers.
func (s sort) reads() bool { return s.curatorRead() || s.kazooRead() }

// A verdict says whether a contender waits for another contender ahead of it.
type verdict int

const (
	no verdict = iota
	perhaps
	yes
)

// waitsFor returns what the table in docs/interop.md says, as far as names decide. Names do not distinguish kazoo's Lock from its
// WriteLock. Names also do not show whether the lock has extra_lock_patterns.
func (s sort) waitsFor(other sort) verdict {
	switch s.kind {
	case kindTierlock, kindTierlockWrite, kindZKLock:
		return yes
	case kindTierlockRead:
		return sure(!other.reads())
	case kindCurator:
		return sure(other.mutex())
	case zkqueue.KindMutex: // a contender of an unknown library
		if other.mutex() {
			return yes
		}
		return perhaps
	case zkqueue.KindWrite:
		return sure(other.curatorWrite() || other.curatorRead())
	case zkqueue.KindRead:
		return sure(other.curatorWrite())
	case zkqueue.KindKazoo, zkqueue.KindKazooRead:
		switch {
		case other.kazoo():
			return yes
		case other.mutex(), s.kind == zkqueue.KindKazoo && other.kazooRead():
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

// The function shared reports whether contenders of two sorts may hold the lock at the same time, as readers do.
func shared(a, b sort) bool {
	either := a.kind == kindTierlockRead || b.kind == kindTierlockRead
	return a.reads() && b.reads() && (either || a.kind == b.kind)
}
