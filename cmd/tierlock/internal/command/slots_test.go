//go:build linux || darwin || freebsd || windows

package command

import (
	"bufio"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/clock"
	"github.com/tierlock/tierlock/internal/test/need"
)

// The front may send a question just before it learns that a slot has ended. This question must not make the keeper start the next command,
// because the front does not watch that command yet.
func TestKeeperStartsTheNextCommandOnlyUnderTheEyesOfTheFront(t *testing.T) {
	read, write, err := os.Pipe()
	need.OK(t, err)
	defer read.Close()
	defer write.Close()
	heard := make(chan string, 3)
	for _, text := range []string{"ask 7", "rest", "ask 8"} {
		heard <- text
	}
	k := &keeper{runOptions: &runOptions{grace: time.Second}, in: &invocation{command: []string{"/no-such-command"}}, resting: 1,
		front: line{write, heard}, hold: leased{until: time.Now().Add(time.Hour)},
		locks: &Locks{Margin: func() time.Duration { return 4 * time.Second }}}
	need.Equal(t, "the status of a command that is not there", status(k.underLock()), exitNotFound)
	said := bufio.NewScanner(read)
	said.Scan()
	need.Equal(t, "first the keeper says", said.Text(), "held")
	said.Scan()
	var life, question int64
	need.Get(fmt.Sscanf(said.Text(), "for %d %d", &life, &question))(t)
	need.Equal(t, "it answers the question", question, 8)
}

// Between two slots, no command runs that the front could kill. It then neither asks nor misses an answer, for any length of time.
func TestFrontRestsBetweenSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write, err := os.Pipe()
		need.OK(t, err)
		defer read.Close()
		defer write.Close()
		f := &front{line: line{out: write}, ask: stopped(), deadline: stopped(), clock: clock.New()}
		f.hear("held")
		f.hear(fmt.Sprintf("for %d 1", 10*time.Second))
		f.hear("rest")
		need.That(t, "without its command, the front takes the end of the keeper for a loss", !f.held)
		select {
		case <-f.ask.C:
			t.Error("the front asks")
		case <-f.deadline.C:
			t.Error("the front kills")
		case <-time.After(time.Hour):
		}
		said := bufio.NewScanner(read)
		for _, want := range []string{"ask 1", "rest"} {
			said.Scan()
			need.Equal(t, "the front says", said.Text(), want)
		}
	})
}
