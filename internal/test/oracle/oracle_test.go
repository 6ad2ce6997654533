package oracle

import (
	"fmt"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// A step is one step of a history. It returns the new state of the lock, and the violation if there is one.
type step func(Lock) (Lock, error)

func enters(t Turn) step { return func(l Lock) (Lock, error) { return l.Enter(t) } }
func leaves(t Turn) step { return func(l Lock) (Lock, error) { return l.Leave(t) } }
func loses(t Turn) step  { return func(l Lock) (Lock, error) { return l.Without(t), nil } }

// The function turn returns a Turn of weight 1.
func turn(process, owner int, token int64) Turn {
	return Turn{Process: process, Owner: owner, Weight: 1, Token: token}
}

func weighing(weight int64, t Turn) Turn {
	t.Weight = weight
	return t
}

func TestHistories(t *testing.T) {
	a, b := turn(1, 1, 5), turn(2, 1, 6)
	reader, writer := turn(1, 1, 5), weighing(Everybody, turn(2, 1, 6))
	none := turn(1, 1, 0)
	type row struct {
		room  Room
		steps []step
		wrong string // the violation of the last step
	}
	need.Each(t, map[string]row{
		"in turn":                             {Mutex, []step{enters(a), leaves(a), enters(b)}, ""},
		"two processes at once":               {Mutex, []step{enters(a), enters(b)}, "I1: process 2, hold 1, token 6 enters beside process 1"},
		"two goroutines at once":              {Mutex, []step{enters(a), enters(turn(1, 2, 5))}, "I2: "},
		"after one that was lost":             {Mutex, []step{enters(a), loses(a), enters(b)}, ""},
		"readers":                             {Everybody, []step{enters(reader), enters(turn(2, 1, 6)), enters(turn(3, 1, 7))}, ""},
		"a writer beside a reader":            {Everybody, []step{enters(reader), enters(writer)}, "I1: "},
		"a reader beside a writer":            {Everybody, []step{enters(writer), enters(turn(3, 1, 7))}, "I1: "},
		"permits that come to the room":       {3, []step{enters(weighing(2, a)), enters(b)}, ""},
		"one permit too many":                 {3, []step{enters(weighing(2, a)), enters(weighing(2, b))}, "I1: "},
		"a token is passed on in a process":   {Mutex, []step{enters(a), leaves(a), enters(turn(1, 2, 5))}, ""},
		"a token is passed on to another":     {Mutex, []step{enters(a), leaves(a), enters(turn(2, 1, 5))}, "I8: process 2 has token 5, which"},
		"a token falls":                       {Mutex, []step{enters(a), leaves(a), enters(turn(1, 2, 4))}, "I8: process 1 has token 4, after 5"},
		"a token falls behind one without":    {Mutex, []step{enters(a), leaves(a), enters(none), leaves(none), enters(turn(2, 1, 4))}, "I8: "},
		"no token is no promise":              {Mutex, []step{enters(a), leaves(a), enters(none)}, ""},
		"tokens of readers in any order":      {Everybody, []step{enters(turn(1, 1, 6)), enters(turn(2, 1, 5))}, ""},
		"a token of readers of two processes": {Everybody, []step{enters(reader), enters(turn(2, 1, 5))}, "I8: "},
		"a writer's token before a reader's":  {Everybody, []step{enters(turn(1, 1, 7)), leaves(turn(1, 1, 7)), enters(writer)}, "I8: "},
		"a reader's token before a writer's":  {Everybody, []step{enters(writer), leaves(writer), enters(reader)}, "I8: "},
		"a reader passes its process's token on to a writer": {Everybody,
			[]step{enters(reader), leaves(reader), enters(weighing(Everybody, turn(1, 2, 5)))}, ""},
		"an owner enters again":            {Mutex, []step{enters(a), enters(a), leaves(a), leaves(a), enters(b)}, ""},
		"and is inside until it left":      {Mutex, []step{enters(a), enters(a), leaves(a), enters(b)}, "I1: "},
		"and with another token":           {Mutex, []step{enters(a), enters(turn(1, 1, 6))}, "I8: an owner with token 5 enters again with 6"},
		"a release by one that never was":  {Mutex, []step{leaves(a)}, "I1: "},
		"a release of another's lock":      {Mutex, []step{enters(a), leaves(b)}, "I1: "},
		"what was released more than once": {Mutex, []step{enters(a), leaves(a), leaves(a)}, "I1: "},
	}, func(t *testing.T, test row) {
		l := Lock{Room: test.room}
		for i, s := range test.steps {
			want := ""
			if i == len(test.steps)-1 {
				want = test.wrong
			}
			var err error
			before := fmt.Sprint(l)
			l, err = s(l)
			need.Equal(t, fmt.Sprintf("whether step %d is right after %s: %v;", i, before, err), err == nil, want == "")
			if err != nil {
				need.Has(t, "the error", err.Error(), want)
			}
		}
	})
}

func TestALockIsAValueWithoutAnOrderOfItsOwners(t *testing.T) {
	free := Lock{Room: Everybody}
	a, b := turn(1, 1, 5), turn(2, 1, 6)
	of := func(turns ...Turn) Lock {
		l := free
		for _, t := range turns {
			l, _ = l.Enter(t)
		}
		return l
	}
	one, two := of(a), of(a, b)
	again, _ := one.Enter(a)
	need.That(t, "an Enter changes the lock before it", len(one.Inside) == 1 && one.Inside[0].Depth == 0 && len(free.Inside) == 0)
	need.That(t, "the order of owners counts", two.Equal(of(b, a)))
	for _, other := range []Lock{free, one, again, two.Without(a), {Room: 2, Inside: two.Inside, Tokens: two.Tokens}} {
		need.That(t, fmt.Sprintf("%v is taken for %v", other, two), !two.Equal(other))
	}
	need.That(t, "how deep an owner is inside does not count", !one.Equal(again))
}

// A spell is a turn, given by the numbers of the steps at which it begins and ends. Steps of the same process are ordered. Steps of two
// processes are ordered only if their numbers differ by ten or more.
type spell struct {
	process, from, to int
	weight            int64
}

func TestACrowdIsFoundInEachOrderOfIndependentSteps(t *testing.T) {
	before := func(x, y spell) bool { return x.to+10 <= y.from || x.process == y.process && x.to <= y.from }
	apart := func(x, y spell) bool { return before(x, y) || before(y, x) }
	x := spell{1, 100, 200, 2}
	type row struct {
		room   Room
		others []spell
		want   int // how many spells the crowd contains
	}
	many := make([]spell, 60)
	for i := range many {
		many[i] = spell{i + 2, 100, 200, 1}
	}
	need.Each(t, map[string]row{
		"nobody else":                           {2, nil, 0},
		"one that has ended in each order":      {2, []spell{{2, 10, 90, 1}}, 0},
		"one that has ended in this order":      {2, []spell{{2, 10, 95, 1}}, 2},
		"the same in one process":               {2, []spell{{1, 10, 95, 1}}, 0},
		"one that begins before it ends":        {2, []spell{{2, 205, 300, 1}}, 2},
		"one for which there is room":           {3, []spell{{2, 10, 95, 1}}, 0},
		"two, with room for only one of them":   {3, []spell{{2, 10, 95, 1}, {3, 10, 95, 1}}, 3},
		"two that are apart":                    {3, []spell{{2, 10, 95, 1}, {3, 150, 160, 1}}, 0},
		"the second and third":                  {3, []spell{{2, 10, 90, 1}, {3, 150, 160, 1}, {4, 155, 160, 1}}, 3},
		"so many that not all sets can be seen": {Everybody, many, 0},
	}, func(t *testing.T, test row) {
		crowd := Crowd(test.room, x, test.others, func(s spell) int64 { return s.weight }, apart)
		need.Len(t, "the crowd", crowd, test.want)
		need.That(t, fmt.Sprintf("the crowd is %v, want the newest first", crowd), test.want == 0 || crowd[0] == x)
	})
}

func TestWhoIsAlone(t *testing.T) {
	for _, test := range []struct {
		room   Room
		weight int64
		want   bool
	}{
		{Mutex, 1, true}, {Everybody, 1, false}, {Everybody, Everybody, true}, {3, 2, false}, {3, 3, true},
	} {
		need.Equal(t, fmt.Sprintf("weight %d in room for %d", test.weight, test.room), test.room.Alone(test.weight), test.want)
	}
}

func TestAStaleTokenIsLowerThanOneBefore(t *testing.T) {
	tokens := Tokens{}.With(Mark{5, 1}, true).With(Mark{7, 2}, false).With(Mark{6, 3}, false)
	for _, test := range []struct {
		token int64
		alone bool
		want  bool
	}{
		{4, false, true}, {5, false, false}, {6, false, false}, {8, false, false}, // a reader
		{6, true, true}, {7, true, false}, {8, true, false},
		{0, true, false},
	} {
		need.Equal(t, fmt.Sprintf("token %d, alone %t: stale", test.token, test.alone), tokens.Stale(Mark{test.token, 9}, test.alone), test.want)
	}
}

func TestNobodyIsServedBeforeWhoCameFirst(t *testing.T) {
	x := Waiter{Name: "x", Queue: "q", Came: 2}
	for name, test := range map[string]struct {
		x, other Waiter
		want     bool
	}{
		"one that came later":     {x, Waiter{Queue: "q", Came: 3}, true},
		"one that came before":    {x, Waiter{Queue: "q", Came: 1}, false},
		"one of another queue":    {x, Waiter{Queue: "other", Came: 1}, true},
		"one that tries":          {x, Waiter{Queue: "q", Came: 1, Tries: true}, true},
		"itself, and it tries":    {Waiter{Queue: "q", Came: 2, Tries: true}, Waiter{Queue: "q", Came: 1}, true},
		"itself, waiting as well": {x, x, true},
	} {
		err := Served(test.x, []Waiter{test.other})
		need.Equal(t, fmt.Sprintf("%s waits: right (%v)", name, err), err == nil, test.want)
	}
}

func TestAWriteIsOfTheNewestTurnWithItsToken(t *testing.T) {
	m := Mark{5, 1}
	need.OK(t, Wrote(m, nil))
	need.OK(t, Wrote(m, []Mark{{6, 1}, {5, 2}}))
	need.WantMention(t, Wrote(m, []Mark{{6, 1}, {5, 1}}), "I1: ")
}
