// Package logtest keeps what was logged, or printed.
package logtest

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// A Log is what was written until now, a line each.
type Log struct {
	mu   sync.Mutex // guards the field below
	text strings.Builder
}

// New returns a log, and the logger that writes to it from level on.
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

// Lines returns those of a level that hold text.
func (l *Log) Lines(level slog.Level, text string) (lines []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, fmt.Sprintf("level=%v ", level)) && strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}
