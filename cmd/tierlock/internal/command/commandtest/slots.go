//go:build linux || darwin || freebsd

package commandtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
)

// A ran is a line that the command of a slot has written.
type ran struct {
	slot    time.Time
	attempt int
	token   int64
}

// The function runs returns the complete lines in a file.
func runs(t *testing.T, file string) (all []ran) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, line := range lines[:len(lines)-1] {
		var r ran
		var slot string
		_, err := fmt.Sscan(line, &slot, &r.attempt, &r.token)
		if err == nil {
			r.slot, err = time.Parse(time.RFC3339, slot)
		}
		if err != nil || !strings.HasSuffix(slot, "Z") {
			t.Fatalf("the command has written %q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// Each slot runs once, in one of two processes. A slot runs a second time only if the keeper was killed during its first run. No slot is
// missed, not even while the lock of the killed process is still taken.
func slotsRunOnce(t *testing.T, s Site) {
	const path = "/slots/once"
	file := filepath.Join(t.TempDir(), "runs")
	const script = `echo "$TIERLOCK_SLOT $TIERLOCK_ATTEMPT $TIERLOCK_TOKEN" >> "$0"`
	var tools []*Tool
	for range 2 {
		tools = append(tools, s.start(t, Under("-every 1s -session 4s -grace 200ms -catch-up 1000 -after-crash retry", path, "sh", "-c", script,
			file)...))
	}
	await := func(slots int) {
		t.Helper()
		childtest.Eventually(t, fmt.Sprint(slots, " runs"), func() bool { return len(runs(t, file)) >= slots })
	}
	await(5)
	childtest.Eventually(t, "a contender", func() bool { return len(s.who(t, path)) == 2 })
	queue := s.who(t, path)
	if !strings.HasPrefix(queue[0].Label, "run -every 1s ") {
		t.Errorf("the label is %q", queue[0].Label)
	}
	if tools[0].Keeper() != queue[0].PID {
		slices.Reverse(tools)
	}
	if err := syscall.Kill(queue[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if status := tools[0].Status(); status != 70 && status != 74 { // 70 if no command was running, 74 if one was
		t.Errorf("without its keeper, tierlock exits with %d", status)
	}
	await(len(runs(t, file)) + 5)
	tools[1].Signal(syscall.SIGTERM)
	tools[1].Exits(0)
	s.want(t, "who "+path, 0, "free, with no waiters")

	all := runs(t, file)
	for i, r := range all[1:] {
		before := all[i]
		switch {
		case r.attempt == 1 && r.slot.Equal(before.slot.Add(time.Second)):
		case r.attempt == 2 && r.token > before.token && (r.slot.Equal(before.slot) || r.slot.Equal(before.slot.Add(time.Second))):
		default:
			t.Errorf("after %+v runs %+v", before, r)
		}
		if r.token < before.token {
			t.Errorf("after %+v the token of %+v is lower", before, r)
		}
	}
	if all[0].token == all[len(all)-1].token {
		t.Error("all slots ran under one token, though the keeper was killed")
	}
}

// If the command of a slot fails, or gets a signal that is not for tierlock, the next slot runs. TERM reaches the command and ends the
// schedule, also between slots, and nothing is left in the queue. A process that has another schedule logs a warning, and uses its own
// schedule.
func slotsAndSignals(t *testing.T, s Site) {
	const path = "/slots/signals"
	stage := NewStage(t)
	p := s.start(t, Under("-every 1s -v", path, stage.Command()...)...)
	stage.First().Leave(3)
	p.Says(": exit status 3")
	section := stage.First()
	p.Signal(syscall.SIGUSR1)
	section.Hears(syscall.SIGUSR1)
	section.Leave(0)
	p.Says("Z ran for ")
	section = stage.First()
	p.Signal(syscall.SIGTERM)
	section.Dies()
	p.Exits(0)
	p.Says(": exit status 143")
	s.want(t, "who "+path, 0, "free, with no waiters")

	p = s.start(t, Under("-cron @yearly", path, stage.Command()...)...)
	childtest.Eventually(t, "a holder", func() bool { queue := s.who(t, path); return len(queue) == 1 && queue[0].State == "holds" })
	p.Says(`tierlock: level=WARN msg="slots: another process has used another schedule;`)
	p.Says("was cut off, and does not run again") // this line is about the run that TERM has ended
	p.Signal(syscall.SIGTERM)
	p.Exits(0)
	s.want(t, "who "+path, 0, "free, with no waiters")
	stage.NoMore()
}

// The lock moves to the process that waits, without a loss, if another process asks for it between slots, and if the front is killed.
// With -revocable, a request also ends the command of a slot.
func slotsMoveOnRequest(t *testing.T, s Site) {
	const path = "/slots/moves"
	holder := func(p *Tool) {
		t.Helper()
		childtest.Eventually(t, "another holder", func() bool { queue := s.who(t, path); return len(queue) > 0 && queue[0].PID == p.Keeper() })
	}
	start := func() *Tool { return s.start(t, Under("-every 168h -session 30s", path, "true")...) }
	first := start()
	holder(first)
	second := start()
	childtest.Eventually(t, "a contender", func() bool { return len(s.who(t, path)) == 2 })
	s.want(t, "revoke "+path, 0, "asked tierlock .* run -every .*; it releases the lock between two slots")
	holder(second)
	killed := time.Now()
	second.Signal(syscall.SIGKILL)
	holder(first)
	if took := time.Since(killed); took > 20*time.Second {
		t.Errorf("the lock is free after %v, as if its session had to time out", took)
	}
	first.Signal(syscall.SIGINT)
	first.Exits(0)

	stage := NewStage(t)
	p := s.start(t, Under("-every 1s -revocable", path, stage.Command()...)...)
	section := stage.First()
	s.want(t, "revoke "+path, 0, "asked tierlock .* run -revocable -every .*; it ends its command")
	section.Dies()
	p.Says("revoke requested")
	stage.First().Leave(0)
}

// A slot whose command was killed, because the lock was lost, runs again only with -after-crash retry. Then the schedule goes on. A slot
// also counts as cut off if tierlock run was killed, and has ended the command.
func slotsCutOff(t *testing.T, s Site) {
	for flags, want := range map[string]string{"": "was cut off, and does not run again", "-after-crash retry": "runs again, attempt "} {
		path := fmt.Sprintf("/slots/cut-off-%d", len(flags))
		stage := NewStage(t)
		p := s.start(t, Under("-every 1s "+flags, path, stage.Command("stubborn")...)...)
		section := stage.First()
		s.want(t, fmt.Sprintf("break %s -yes -token %d", path, s.who(t, path)[0].Token), 0, "deleted")
		section.Dies()
		p.Says("was cut off, because the lock was lost")
		section = stage.First()
		p.Says(want)
		section.Leave(0)

		stage = NewStage(t)
		p = s.start(t, Under("-every 1s "+flags, path+"/killed", stage.Command()...)...)
		section = stage.First()
		p.Signal(syscall.SIGKILL)
		section.Dies()
		p = s.start(t, Under("-every 1s "+flags, path+"/killed", stage.Command()...)...)
		p.Says(want)
		stage.First().Leave(0)
	}
}
