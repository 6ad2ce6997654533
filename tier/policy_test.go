package tier

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

// The tables below have this time, this budget of each waiter, and this limit for a permit.
const policyNow, policyBudget, policyStay = time.Hour, 20 * time.Millisecond, idleTrips * policyBudget

// The function want returns a waiter that wants this many permits.
func want(permits int) wish { return wish{permits: permits, budget: policyBudget} }

// The function aged returns a permit that was released or kept. The store granted it this long ago.
func aged(age time.Duration) spare {
	return spare{stay: stay{policyNow - age, idleTrips}, certain: true}
}

var (
	young, old    = aged(policyStay - 1), aged(policyStay) // the time of old is just over
	unleased      = spare{stay: aged(0).stay}
	granted       = spare{stay: aged(0).stay, granted: true, certain: true}
	unleasedGrant = spare{stay: aged(0).stay, granted: true}
)

func TestFatesOfSparePermits(t *testing.T) {
	type row struct {
		v     poolView
		want  []fate
		until time.Duration // from now on
	}
	here := func(taken int, waiters []wish, spares ...spare) poolView {
		return poolView{now: policyNow, contended: true, taken: taken, waiters: waiters, spares: spares}
	}
	alone := func(v poolView) poolView { v.contended = false; return v }
	away := func(v poolView) poolView { v.away = true; return v }
	ones := []wish{want(1)}
	need.Each(t, map[string]row{
		"without a waiter all permits go back": {alone(here(1, nil, young, granted)), []fate{givenBack, givenBack}, 0},
		"a released permit goes to a waiter":   {here(0, ones, young), []fate{handedOut}, 0},
		"several waiters are served at once": {
			here(0, []wish{want(1), want(2)}, young, granted, young), []fate{handedOut, handedOut, handedOut}, 0},
		"the first permits are handed out first":        {here(0, ones, young, young), []fate{handedOut, givenBack}, 0},
		"a part of a request is not handed out":         {here(0, []wish{want(2)}, young), []fate{givenBack}, 0},
		"a small request does not overtake a large one": {here(0, []wish{want(2), want(1)}, young), []fate{givenBack}, 0},
		"a part is kept if this process has the rest":   {here(1, []wish{want(2)}, young), []fate{kept}, 1},
		"a part is not kept if the rest is elsewhere":   {here(1, []wish{want(3)}, young), []fate{givenBack}, 0},
		"permits that are handed out now are part of the rest": {
			here(0, []wish{want(1), want(2)}, young, granted), []fate{handedOut, kept}, policyStay},
		"the first of the kept permits to leave sets the time": {
			here(1, []wish{want(4)}, granted, young, granted), []fate{kept, kept, kept}, 1},

		"a permit goes back when its time is over":           {here(0, ones, old), []fate{givenBack}, 0},
		"an old permit stays while no other process waits":   {alone(here(0, ones, old)), []fate{handedOut}, 0},
		"a permit whose time is over is not kept":            {here(1, []wish{want(3)}, old, young), []fate{givenBack, givenBack}, 0},
		"an old permit goes back, and a younger one is kept": {here(2, []wish{want(3)}, old, young), []fate{givenBack, kept}, 1},
		"a permit has the time of the first waiter":          {here(0, []wish{{1, time.Hour, false}}, old), []fate{handedOut}, 0},
		"a budget without end does not overflow":             {here(0, []wish{{1, math.MaxInt64, false}}, old), []fate{handedOut}, 0},
		"what is left has the time of the next waiter": {
			here(0, []wish{{1, time.Hour, false}, want(2)}, old, old), []fate{handedOut, givenBack}, 0},

		"a permit without a lease goes back":                    {alone(here(0, ones, unleased)), []fate{givenBack}, 0},
		"a granted permit without a lease serves a waiter":      {here(0, ones, unleasedGrant), []fate{handedOut}, 0},
		"a granted permit without a lease is not kept":          {alone(here(1, []wish{want(2)}, unleasedGrant)), []fate{givenBack}, 0},
		"without a connection a released permit goes back":      {away(here(0, ones, young)), []fate{givenBack}, 0},
		"without a connection a granted permit serves a waiter": {away(here(0, ones, granted)), []fate{handedOut}, 0},
		"without a connection a granted permit is not kept":     {away(here(1, []wish{want(2)}, granted)), []fate{givenBack}, 0},
		"an old permit goes back, and a granted one serves":     {here(0, ones, old, granted), []fate{givenBack, handedOut}, 0},
		"a granted permit completes what was kept":              {here(0, []wish{want(2)}, young, granted), []fate{handedOut, handedOut}, 0},
		"nothing is handed out if nothing is spare":             {here(0, []wish{want(9)}), nil, 0},
	}, func(t *testing.T, c row) {
		before := slices.Clone(c.v.spares)
		got := c.v.assign()
		need.List(t, "fates", got.fates, c.want...)
		if c.until > 0 {
			c.until += policyNow
		}
		need.Equal(t, "the time of the timer", got.until, c.until)
		need.List(t, "the spares after the call", c.v.spares, before...)
	})
}

// The budgets run from the last check that saw no other process wait. A check without a waiter or without a connection shows nothing.
func TestSinceWhenBudgetsRun(t *testing.T) {
	const before = policyNow - policyStay/2
	type row struct {
		waiters         []wish
		contended, away bool
		alone           time.Duration
		fate            fate
	}
	need.Each(t, map[string]row{
		"no other process waits":                       {[]wish{want(1)}, false, false, policyNow, handedOut},
		"another process waits since the last check":   {[]wish{want(1)}, true, false, before, handedOut},
		"no waiter is here":                            {nil, false, false, before, givenBack},
		"the connection is down":                       {[]wish{want(1)}, false, true, before, givenBack},
		"another process waits, and no waiter is here": {nil, true, false, before, givenBack},
	}, func(t *testing.T, c row) {
		v := poolView{now: policyNow, alone: before, contended: c.contended, away: c.away, waiters: c.waiters, spares: []spare{old}}
		got := v.assign()
		need.Equal(t, "the last check without another process", got.alone, c.alone)
		need.List(t, "the fate of an old permit", got.fates, c.fate)
	})
}

func TestFatesOfKeptPermitsWhenTimeIsOver(t *testing.T) {
	type row struct {
		taken  int // beside the kept permits, for a request of four
		spares []spare
		want   []fate
	}
	need.Each(t, map[string]row{
		"one goes, and the others still suffice":      {2, []spare{old, young, young}, []fate{givenBack, kept, kept}},
		"one goes, and the others go with it":         {1, []spare{young, old, young}, []fate{givenBack, givenBack, givenBack}},
		"all go":                                      {3, []spare{old, old}, []fate{givenBack, givenBack}},
		"none goes, since the timer was stopped late": {2, []spare{young, young}, []fate{kept, kept}},
		"only the time counts":                        {3, []spare{unleased}, []fate{kept}},
		"none is kept":                                {4, nil, nil},
	}, func(t *testing.T, c row) {
		v := poolView{now: policyNow, away: true, taken: c.taken, waiters: []wish{want(4)}, spares: c.spares}
		got := v.expire()
		need.List(t, "fates", got.fates, c.want...)
		need.Equal(t, "the last check without another process", got.alone, 0)
		if until := policyNow + 1; slices.Contains(c.spares, young) && slices.Contains(c.want, kept) {
			need.Equal(t, "the time of the timer", got.until, until)
		}
	})
	need.Empty(t, "fates without a waiter", poolView{now: policyNow}.expire().fates)
}

func TestHowManyPermitsAPoolTakes(t *testing.T) {
	type row struct {
		s       supply
		waiters []wish
		want    int
	}
	strict := func(w wish) wish { w.strict = true; return w }
	ones := slices.Repeat([]wish{want(1)}, 8)
	need.Each(t, map[string]row{
		"none without a waiter":                                 {supply{10, 0, 10, 0}, nil, 0},
		"what the waiters want":                                 {supply{10, 0, 10, 0}, ones, 8},
		"what is free":                                          {supply{10, 0, 3, 0}, ones, 3},
		"none if that does not complete the first":              {supply{10, 0, 3, 0}, []wish{want(4), want(1)}, 0},
		"the share of one process, rounded up":                  {supply{10, 2, 10, 0}, ones, 4},
		"one permit if the share is less":                       {supply{10, 20, 10, 0}, ones, 1},
		"twice the largest request if the share is less":        {supply{10, 9, 10, 0}, []wish{want(1), want(3), want(2), want(2)}, 6},
		"a request beyond all permits does not raise the share": {supply{4, 3, 9, 0}, []wish{want(2), want(2), want(4)}, 4},
		"only what the kept permits do not cover":               {supply{10, 0, 4, 3}, []wish{want(5)}, 2},
		"kept permits complete the first":                       {supply{10, 0, 1, 3}, []wish{want(4)}, 1},
		"kept permits are part of the share":                    {supply{10, 1, 9, 1}, ones, 4},
		"none if kept permits are more than the share":          {supply{10, 9, 5, 5}, ones, 0},
		"in strict order what the first waiter wants":           {supply{10, 0, 10, 0}, []wish{strict(want(2)), want(1)}, 2},
		"none for waiters behind one that wants strict order":   {supply{10, 0, 10, 0}, []wish{want(1), strict(want(1)), want(1)}, 2},
		"what is free if the semaphore has no bound":            {supply{math.MaxInt, 0, 2, 0}, []wish{want(2), want(2)}, 2},
	}, func(t *testing.T, c row) { need.Equal(t, "takes", c.s.take(c.waiters), c.want) })
}

func TestBudgetsOfAGrant(t *testing.T) {
	type row struct {
		granted, total, others int
		want                   float64
	}
	need.Each(t, map[string]row{
		"all permits stay for three budgets":                         {10, 10, 5, 3},
		"half of them stay twice as long":                            {5, 10, 5, 6},
		"a tenth stays for one portion for each process that queues": {1, 10, 1, 6},
		"a tenth stays for three budgets if no other process queues": {1, 10, 0, 3},
	}, func(t *testing.T, c row) { need.Equal(t, "budgets", budgetsOf(c.granted, c.total, c.others), c.want) })
}
