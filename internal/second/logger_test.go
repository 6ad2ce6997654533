package second

import (
	"context"
	"log/slog"
	"testing"

	"github.com/tierlock/tierlock/internal/logtest"
)

// A program sets its logger when it likes, and whoever sets none for the locks is to hear of a lost one.
func TestWarningsGoToTheDefaultOfTheTime(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	logger := Defaults.Logger
	with := logger.With("a", 1).WithGroup("g").With("b", 2)
	log, later := logtest.New(slog.LevelDebug)
	slog.SetDefault(later)
	logger.Info("lower")
	logger.Warn("a warning", "path", "/l")
	with.Error("an error", "c", 3)
	if lines := log.Lines(slog.LevelWarn, `msg="a warning" path=/l`); len(lines) != 1 {
		t.Errorf("logged %s", log)
	}
	if lines := log.Lines(slog.LevelError, "a=1 g.b=2 g.c=3"); len(lines) != 1 || len(log.Lines(slog.LevelInfo, "")) > 0 {
		t.Errorf("logged %s", log)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if logger.Enabled(context.Background(), slog.LevelError) {
		t.Error("enabled although the default logs nothing")
	}
}
