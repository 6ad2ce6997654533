// Package oracle contains the rules for what a lock may do. There are several drivers that run locks: the suite of second tiers on real
// servers, the explorer with every order of steps at a small scope or with random schedules, and chaos. The rules are the same for all
// drivers. Therefore each rule is here, and drivers call it:
//
//   - I1 and I2 say which owners may have a lock at the same time: [Room], [Lock.Enter], and [Crowd] for steps without a fixed order
//   - I8 says which token may come after which: [Tokens]; [Wrote] checks that a guarded write belongs to the present hold (I1)
//   - I6 says which waiter has to be served before which: [Served]
//   - An owner enters again with the token that it has, and releases only what it has: [Lock.Enter], [Lock.Leave]. Only stress uses these
//     two, because it records reentrant acquisitions
//
// The package has no clock. The driver says which step came before which other step. It knows that from real time, from virtual time, or
// because one step depends on the other. The driver also says until when a hold counts, because only the driver knows when the owner
// learned of its loss (I7).
//
// The package does not check the answers of a store. Package stress/internal/trace checks them with a model of ZooKeeper.
package oracle

import (
	"fmt"
	"slices"
	"strings"
)

// Room is the greatest total weight of the owners that may have a lock at the same time. Each owner has a weight. The room of a semaphore
// is its number of permits, and a mutex is a semaphore with one permit.
type Room int64

// Mutex is the room of a mutex: one owner at a time, of weight 1.
const Mutex Room = 1

// Everybody is the room of a reader/writer lock: a reader weighs 1, and a writer weighs as much as the room.
const Everybody = 1 << 32

// Weight returns the weight of a reader or a writer in the room Everybody.
func Weight(reads bool) int64 {
	if reads {
		return 1
	}
	return Everybody
}

// Fits reports whether a weight fits into the room.
func (r Room) Fits(weight int64) bool { return weight <= int64(r) }

// Alone reports whether an owner of this weight excludes every other owner.
func (r Room) Alone(weight int64) bool { return weight >= int64(r) }

// A Turn is one owner's hold of a lock.
type Turn struct {
	// Process is the process of the owner. Within a process, a token may pass from one owner to the next. A driver in which no token passes
	// numbers the turns here.
	Process int
	Owner   int // number of the owner within its process
	Weight  int64
	Token   int64 // 0: there is no token, so no promise about tokens applies
	Depth   int   // how many further times the owner has entered
}

// Turn.same reports whether both turns have the same owner.
func (t Turn) same(other Turn) bool { return t.Process == other.Process && t.Owner == other.Owner }

// A Lock is the state of a lock after a sequence of grants and releases. It is a value: each grant or release returns a new Lock.
type Lock struct {
	Room   Room
	Inside []Turn
	Tokens Tokens
}

// Enter records a grant. A new owner needs enough room: an excess breaks I1, or I2 if owners of the same process cause it. The token of a
// new owner has to be allowed by I8. An owner that is already inside enters again, with its own token. A grant that breaks a rule is
// recorded, too.
func (l Lock) Enter(t Turn) (Lock, error) {
	next := l
	next.Inside = slices.Clone(l.Inside)
	if i := slices.IndexFunc(l.Inside, t.same); i >= 0 {
		next.Inside[i].Depth++
		if had := l.Inside[i].Token; t.Token != had {
			return next, fmt.Errorf("I8: an owner with token %d enters again with %d", had, t.Token)
		}
		return next, nil
	}
	alone := l.Room.Alone(t.Weight)
	next.Inside = append(next.Inside, t)
	next.Tokens = l.Tokens.With(t.mark(), alone)
	if err := l.fits(t); err != nil {
		return next, err
	}
	return next, l.Tokens.Judge(t.mark(), alone)
}

func (l Lock) fits(t Turn) error {
	rule, weight := "I2", t.Weight
	for _, other := range l.Inside {
		weight += other.Weight
		if other.Process != t.Process {
			rule = "I1"
		}
	}
	if !l.Room.Fits(weight) {
		return fmt.Errorf("%s: %v enters beside %v, with room for %d", rule, t, l, l.Room)
	}
	return nil
}

// Leave records a release. An owner that has entered more than once stays inside until its last release.
func (l Lock) Leave(t Turn) (Lock, error) {
	i := slices.IndexFunc(l.Inside, t.same)
	if i < 0 {
		return l, fmt.Errorf("I1: %v is released by an owner that does not have the lock", t)
	}
	if l.Inside[i].Depth == 0 {
		return l.Without(t), nil
	}
	l.Inside = slices.Clone(l.Inside)
	l.Inside[i].Depth--
	return l, nil
}

// Without removes the owner of a turn, if it is inside.
func (l Lock) Without(t Turn) Lock {
	l.Inside = slices.DeleteFunc(slices.Clone(l.Inside), t.same)
	return l
}

// Equal reports whether two states are the same. The order in which the owners entered does not matter.
func (l Lock) Equal(other Lock) bool {
	missing := func(t Turn) bool { return !slices.Contains(other.Inside, t) }
	return l.Room == other.Room && l.Tokens == other.Tokens && len(l.Inside) == len(other.Inside) && !slices.ContainsFunc(l.Inside, missing)
}

func (t Turn) String() string {
	return fmt.Sprintf("process %d, hold %d%s, token %d", t.Process, t.Owner, weightText(t.Weight), t.Token)
}

// weightText returns the weight for an error text. It returns "" for weight 1, which most turns have.
func weightText(weight int64) string {
	switch weight {
	case 1:
		return ""
	case Everybody:
		return " alone"
	}
	return fmt.Sprintf(" %d times", weight)
}

func (l Lock) String() string {
	if len(l.Inside) == 0 {
		return fmt.Sprintf("free, after token %d of process %d", l.Tokens.Seen.Token, l.Tokens.Seen.Process)
	}
	var texts []string
	for _, t := range l.Inside {
		texts = append(texts, fmt.Sprintf("%v, %d deep", t, t.Depth+1))
	}
	return strings.Join(texts, "; ")
}

// Crowd checks the rule of [Lock.Enter] for steps without a fixed order. If x and some of the others can be inside together in some order
// of the steps, and exceed the room, Crowd returns these turns. Otherwise it returns nil. Two turns are apart if one ends before the other
// begins in every order.
func Crowd[T any](r Room, x T, others []T, weight func(T) int64, apart func(T, T) bool) []T {
	return crowd(r, []T{x}, weight(x), others, weight, apart)
}

// crowd adds turns from others to the turns inside, until they exceed the room. The turns inside can be together in some order, and weigh
// has in total.
func crowd[T any](r Room, inside []T, has int64, others []T, weight func(T) int64, apart func(T, T) bool) []T {
	if !r.Fits(has) {
		return inside
	}
	newest, all := inside[len(inside)-1], has
	others = slices.DeleteFunc(slices.Clone(others), func(y T) bool { return apart(newest, y) })
	for _, y := range others {
		all += weight(y)
	}
	for i := 0; i < len(others) && !r.Fits(all); i++ {
		y := others[i]
		if c := crowd(r, append(slices.Clone(inside), y), has+weight(y), others[i+1:], weight, apart); c != nil {
			return c
		}
		all -= weight(y)
	}
	return nil
}
