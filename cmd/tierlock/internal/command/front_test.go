//go:build linux || darwin || freebsd || windows

package command

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/clock"
	"github.com/tierlock/tierlock/internal/test/need"
)

// After a stop, the front may find that its deadline has passed. The keeper may still exist without having ended the command. The front
// therefore asks once before it kills.
func TestFrontThatWasStoppedAsksOnce(t *testing.T) {
	null := need.Get(os.OpenFile(os.DevNull, os.O_WRONLY, 0))(t)
	defer null.Close()
	f := &front{line: line{out: null}, ask: stopped(), deadline: stopped(), clock: clock.New(), until: -time.Hour}
	need.That(t, "the keeper is not asked", f.late())
	f.hear(fmt.Sprintf("for %d %d", -time.Hour, f.question))
	need.That(t, "the keeper is asked again, though the lock is not ours any more", !f.late())
}

// While the machine sleeps, the front's timer does not run. When it fires, the front checks the clock and asks once.
func TestFrontWhoseMachineSleptPastItsDeadlineAsksOnce(t *testing.T) {
	null := need.Get(os.OpenFile(os.DevNull, os.O_WRONLY, 0))(t)
	defer null.Close()
	f := &front{line: line{out: null}, ask: stopped(), deadline: stopped(), clock: clock.New(), until: time.Hour}
	need.That(t, "there is time", f.late())
	need.Equal(t, "questions before the sleep", f.question, 0)
	f.clock.Suspend(2 * time.Hour)
	need.That(t, "the keeper is not asked", f.late())
	need.Equal(t, "questions after it", f.question, 1)
	need.That(t, "the keeper has not answered, and there is more time", !f.late())
}

// A leased is a hold whose lease ends at a fixed time.
type leased struct {
	hold
	until time.Time
}

func (l leased) ValidUntil() time.Time { return l.until }
func (l leased) Lost() <-chan struct{} { return nil }
func (l leased) Err() error            { return nil }
func (l leased) Token() int64          { return 1 }

// The front's time limit and the keeper's own KILL both use a clock that includes the sleep of the machine.
func TestTheSleepOfTheMachineIsTakenOffTheLifeOfTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write, err := os.Pipe()
		need.OK(t, err)
		defer read.Close()
		defer write.Close()
		const valid, grace, margin, slept = 10 * time.Second, 2 * time.Second, 8 * time.Second, time.Minute
		e := &execution{clock: clock.New(), kill: stopped(), keeper: &keeper{runOptions: &runOptions{grace: grace},
			front: line{out: write}, hold: leased{until: time.Now().Add(valid)}, locks: &Locks{Margin: func() time.Duration { return margin }}}}
		e.look()
		e.killIn(grace)
		e.clock.Suspend(slept)
		e.answer("ask 7")
		var life time.Duration
		var question int
		need.Get(fmt.Fscanf(read, "for %d %d\n", &life, &question))(t)
		need.Equal(t, "the life", life, valid+grace+margin/8-slept)
		begun := time.Now()
		<-e.kill.C
		need.That(t, "the keeper does not look soon", time.Since(begun) < time.Second)
		need.That(t, "the command is not to be killed", e.clock.Left(e.due) <= 0)
	})
}
