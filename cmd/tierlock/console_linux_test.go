package main_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// On a terminal, break first shows the holder. It deletes the holder's contender only after the answer yes.
func TestBreakAsksOnATerminal(t *testing.T) {
	t.Parallel()
	c := console{startServer(t)}
	hold := c.acquire(t, "/asks/report", "billing")
	defer hold.Release()
	s := newScreen(t, c.server.Addr(), "sh", "-c", fmt.Sprintf(`
		for i in 1 2 3; do "$TIERLOCK" break /asks/report -token %d; echo status $i $?; done`, hold.Token()))
	s.shows("held by tierlock")
	s.shows("billing; its node is")
	s.types("n\n")
	s.shows("status 1 1")
	need.WantErr(t, "after a no", hold.Err(), nil)
	s.types("yes\n")
	s.shows("status 2 0")
	s.shows("status 3 1") // if no contender has this token, break does not ask
	<-hold.Lost()
}

// On a terminal, watch draws one screen again and again. When it ends, the terminal looks as before.
func TestWatchDrawsOnATerminal(t *testing.T) {
	t.Parallel()
	c := console{startServer(t)}
	hold := c.acquire(t, "/draws/report", strings.Repeat("billing ", 20))
	defer hold.Release()
	s := newScreen(t, c.server.Addr(), "sh", "-c", `trap : INT; "$TIERLOCK" watch /draws -every 100ms; echo status $?`)
	s.shows("/draws/report")
	s.shows("\x1b[H/draws")
	for line := range strings.Lines(strings.ReplaceAll(s.shown.String(), "\x1b[H", "\n")) { // no line ends before a new frame
		if n := len([]rune(strings.TrimSpace(line))); n > 80+len("\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[K\x1b[J") {
			t.Errorf("a line of %d characters on a screen of 80: %q", n, line)
		}
	}
	s.types(ctrlC)
	s.shows("\x1b[?1049l")
	s.shows("status 0")
}
