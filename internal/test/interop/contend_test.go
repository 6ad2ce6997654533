package interop_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

// A load says what each driver has to do.
type load struct {
	threads int
	section time.Duration
	all     int64 // how many units the lock has
}

// The function share makes the drivers contend for one lock. Driver i gets turn i of turns. If there are more drivers than turns, the list
// starts over.
func share(t *testing.T, l load, drivers []*driver, turns []string) record {
	t.Helper()
	name := newOracle(t)
	for i, d := range drivers {
		d.order(t, "contend %d %d %d %s %d %s", duration.Milliseconds(), l.threads, l.section.Milliseconds(), name, l.all, turns[i%len(turns)])
	}
	var alone int64
	for i, d := range drivers {
		a := d.answer(t)
		t.Logf("%-24s %-12s %6d turns, %5d alone, the fewest of a thread %d%s",
			d.kind, turns[i%len(turns)], a.Turns, a.Alone, a.Fewest, givenUp(a))
		alone += a.Alone
		need.Equal(t, d.kind+": turns that overlap with others", a.Overlaps, 0)
		need.That(t, d.kind+": a thread never had the lock", a.Fewest != 0 || a.GivenUp != 0)
	}
	r := recorded(t, name)
	need.Equal(t, "the counter after turns that were alone", r.alone, alone)
	return r
}

func givenUp(a answer) string {
	if a.GivenUp == 0 {
		return ""
	}
	return fmt.Sprintf(", %d times given up", a.GivenUp)
}

// A contention is the Go driver's execution of the order contend.
type contention struct {
	client  *goClient
	oracle  *oracle
	end     time.Time
	threads int
	turns   [][]int64 // for each turn, the units that it takes one after the other; a turn with more than one number is a downgrade
}

func newContention(client *goClient, order []string) (*contention, error) {
	millis, err1 := time.ParseDuration(order[0] + "ms")
	threads, err2 := strconv.Atoi(order[1])
	section, err3 := time.ParseDuration(order[2] + "ms")
	all, err4 := strconv.ParseInt(order[4], 10, 64)
	o, err5 := openOracle(order[3], section, all)
	err := errors.Join(err1, err2, err3, err4, err5)
	c := &contention{client: client, oracle: o, end: time.Now().Add(millis), threads: threads}
	for _, turn := range order[5:] {
		var units []int64
		for step := range strings.SplitSeq(turn, ">") {
			n, err6 := strconv.ParseInt(step, 10, 64)
			units, err = append(units, n), cmp.Or(err, err6)
		}
		c.turns = append(c.turns, units)
	}
	return c, err
}

// The method run makes goroutines acquire the lock again and again for a while. Each goroutine acquires it at least once.
func (c *contention) run() (answer, error) {
	answers, errs := make([]answer, c.threads), make([]error, c.threads)
	var wg sync.WaitGroup
	for i := range c.threads {
		wg.Go(func() { answers[i], errs[i] = c.takeTurns(i) })
	}
	wg.Wait()
	sum := answer{Fewest: answers[0].Turns}
	for _, a := range answers {
		sum.Turns += a.Turns
		sum.Alone += a.Alone
		sum.Overlaps += a.Overlaps
		sum.Fewest = min(sum.Fewest, a.Turns)
	}
	return sum, errors.Join(errs...)
}

func (c *contention) takeTurns(first int) (a answer, err error) {
	lock := c.client.newLock()
	for i := first; a.Turns == 0 || time.Now().Before(c.end); i++ {
		units := c.turns[i%len(c.turns)]
		if err := lock.acquire(context.Background(), units[0]); err != nil {
			return a, err
		}
		overlap, err := c.visit(lock, units)
		if err := errors.Join(err, lock.release()); err != nil {
			return a, err
		}
		a.Turns++
		if units[0] == c.oracle.all {
			a.Alone++
		}
		if overlap {
			a.Overlaps++
		}
	}
	return a, nil
}

// The method visit runs the critical sections of one acquisition.
func (c *contention) visit(lock goLock, units []int64) (overlap bool, err error) {
	overlap, err = c.oracle.enter(units[0])
	held := units[0]
	for i := 0; err == nil; {
		var changed bool
		changed, err = c.oracle.stay(held)
		overlap = overlap || changed
		if i++; i == len(units) || err != nil {
			break
		}
		err = errors.Join(c.oracle.leave(held-units[i]), lock.(downgrader).downgrade())
		held = units[i]
	}
	return overlap, errors.Join(err, c.oracle.leave(held))
}
