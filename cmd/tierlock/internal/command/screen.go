package command

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
)

// A screen is a terminal on which a table is drawn again and again.
type screen struct {
	out    io.Writer
	size   *os.File // the terminal to which out writes
	path   string
	store  string
	recent []inspect.Event // the newest event is the last one
}

const (
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l" // shows the alternate screen, hides the cursor, and turns line wrap off
	leave = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home  = "\x1b[H"
	wipe  = "\x1b[K" // clears the rest of the line
	below = "\x1b[J" // clears the rest of the screen
)

func openScreen(out io.Writer, size *os.File, path, store string) *screen {
	fmt.Fprint(out, enter)
	return &screen{out: out, size: size, path: path, store: store}
}

func (s *screen) close() { fmt.Fprint(s.out, leave) }

func (s *screen) draw(sight inspect.Sight) {
	width, height := terminalSize(s.size)
	s.recent = append(s.recent, sight.Events...)
	s.recent = s.recent[max(0, len(s.recent)-height):]
	var frame strings.Builder
	frame.WriteString(home)
	for i, line := range s.lines(sight, height) {
		if i > 0 {
			frame.WriteString("\r\n")
		}
		frame.WriteString(clip(line, width) + wipe)
	}
	frame.WriteString(below)
	fmt.Fprint(s.out, frame.String())
}

// The method lines returns the lines of the screen: the locks, and the latest events if there is space.
func (s *screen) lines(sight inspect.Sight, height int) []string {
	state := "Ctrl-C ends"
	if sight.Trouble != "" {
		state = "NO ANSWER: " + clean(sight.Trouble)
	} else if sight.GracePeriod != nil {
		state += "; " + sight.GracePeriod.Error()
	} else if !sight.Complete {
		state += "; there are more locks than -limit"
	}
	lines := []string{fmt.Sprintf("%s  %s  %s", clean(s.path), sight.At.Format("15:04:05"), state), ""}
	var text bytes.Buffer
	t := newTable(&text, "LOCK", "WAIT", "NODE AGE", "HOLDER")
	for _, q := range sight.Queues {
		if s := q.Semaphore; s != nil {
			t.row(q.Path, strconv.Itoa(len(s.Queue)), "-", s.Sum(owner))
			if len(q.Contenders) == 0 {
				continue
			}
		}
		if h := q.Holder(); h != nil {
			t.row(q.Path, strconv.Itoa(q.Waiting()), nodeAge(h), described(h)+more(len(q.Holders())))
		} else if q.Waiting() > 0 {
			t.row(q.Path, strconv.Itoa(q.Waiting()), "-", "none yet")
		} else {
			t.row(q.Path, "-", "-", "free")
		}
	}
	t.end()
	lines = append(lines, strings.Split(strings.TrimRight(text.String(), "\n"), "\n")...)
	if len(lines) >= height {
		return append(lines[:max(0, height-1)], fmt.Sprintf("… and more: %d locks", len(sight.Queues)))
	}
	lines = append(lines, "")
	for _, e := range s.recent[max(0, len(s.recent)-max(0, height-len(lines))):] {
		lines = append(lines, e.Time.Format("15:04:05.0")+" "+eventText(e, s.store))
	}
	return lines[:min(len(lines), height)]
}

// clip cuts a line to the width of the terminal.
func clip(line string, width int) string {
	runes := []rune(line)
	if len(runes) <= width {
		return line
	}
	return string(runes[:max(0, width-1)]) + "…"
}
