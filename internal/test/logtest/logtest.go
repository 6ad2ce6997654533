// Package logtest collects log lines for tests.
package logtest

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// A Log contains the lines that were written so far.
type Log struct {
	mu   sync.Mutex // guards the field below
	text strings.Builder
}

// New returns a log, and a logger that writes to it. The logger leaves out lines below level.
func New(level slog.Level) (*Log, *slog.Logger) {
	l := new(Log)
	return l, slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level}))
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Lines returns the lines with exactly this level that contain text.
func (l *Log) Lines(level slog.Level, text string) (lines []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, fmt.Sprintf("level=%v ", level)) && strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}
