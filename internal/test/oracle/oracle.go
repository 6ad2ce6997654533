// Package oracle says what a lock may do. Drivers differ: the suite of second tiers on real servers, every order of steps at a small scope,
// random schedules, chaos. The rules are the same, so each has one place, here, and a driver asks for it:
//
//   - I1 and I2, who may have a lock beside whom: [Room], [Lock.Enter]; where steps have no order, [Crowd]
//   - I8, which token may come after which: [Tokens]; and whose guarded write is in its turn (I1): [Wrote]
//   - I6, who has to be served before whom: [Served]
//   - an owner enters again with the token that it has, and nobody releases what it does not have: [Lock.Enter], [Lock.Leave]. Only stress
//     feeds these, which notes what goes on inside a turn
//
// The package has no clock. What is before what, the driver says: by real time, by virtual time, or because it is so in every order of
// independent steps. It also says until when a turn counts, as only the driver knows when its owner knew that it was lost (I7).
//
// Not here is what a store may answer: stress/internal/trace has a model of ZooKeeper and judges that, which is another question.
package oracle

import (
	"fmt"
	"slices"
	"strings"
)

// Room is how much may be in a lock at the same time. Whatever is in it has a weight, and the weights come to the room at most. A
// semaphore has as much as permits, and a mutex is a semaphore of one.
type Room int64

// Mutex is the room of a mutex.
const Mutex Room = 1

// Everybody is room for any number of readers, of which each weighs 1, and the weight of a writer.
const Everybody = 1 << 32

// Weight is that of a reader or a writer, in room for everybody.
func Weight(reads bool) int64 {
	if reads {
		return 1
	}
	return Everybody
}

// Fits reports whether there is room for so much.
func (r Room) Fits(weight int64) bool { return weight <= int64(r) }

// Alone reports whether who weighs so much has nobody beside it.
func (r Room) Alone(weight int64) bool { return weight >= int64(r) }

// A Turn is what one owner has of a lock.
type Turn struct {
	Process int // it may pass its token on; where nobody does, each turn has a number of its own
	Owner   int // in its process
	Weight  int64
	Token   int64 // 0: none, of which nothing is promised
	Depth   int   // how often the owner has entered again
}

// same reports whether both are of one owner.
func (t Turn) same(other Turn) bool { return t.Process == other.Process && t.Owner == other.Owner }

// A Lock is how one stands after what was noted, one thing after another. It is a value: noting something makes another one.
type Lock struct {
	Room   Room
	Inside []Turn
	Tokens Tokens
}

// Enter notes a grant. A new owner needs room (I1, or I2 if its own process leaves none) and a token that may come next (I8); one that is
// inside enters again with the token that it has. What is wrong is noted all the same.
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

// Leave notes a release: who has entered again stays inside until the last one.
func (l Lock) Leave(t Turn) (Lock, error) {
	i := slices.IndexFunc(l.Inside, t.same)
	if i < 0 {
		return l, fmt.Errorf("I1: %v is released by one that does not have the lock", t)
	}
	if l.Inside[i].Depth == 0 {
		return l.Without(t), nil
	}
	l.Inside = slices.Clone(l.Inside)
	l.Inside[i].Depth--
	return l, nil
}

// Without notes that the owner of a turn, if it has the lock, has it no more.
func (l Lock) Without(t Turn) Lock {
	l.Inside = slices.DeleteFunc(slices.Clone(l.Inside), t.same)
	return l
}

// Equal ignores in which order the owners came.
func (l Lock) Equal(other Lock) bool {
	missing := func(t Turn) bool { return !slices.Contains(other.Inside, t) }
	return l.Room == other.Room && l.Tokens == other.Tokens && len(l.Inside) == len(other.Inside) && !slices.ContainsFunc(l.Inside, missing)
}

func (t Turn) String() string {
	return fmt.Sprintf("process %d, hold %d%s, token %d", t.Process, t.Owner, weightText(t.Weight), t.Token)
}

// weightText says nothing of the ones that most turns weigh.
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

// Crowd is [Lock.Enter] where steps have no order: it returns x and others that have a lock at the same time in some order, and for which
// there is no room; nil if there are none. Two are apart if, in every order, one ends before the other begins.
func Crowd[T any](r Room, x T, others []T, weight func(T) int64, apart func(T, T) bool) []T {
	return crowd(r, []T{x}, weight(x), others, weight, apart)
}

// crowd adds some of others to those that are inside together and weigh so much.
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
