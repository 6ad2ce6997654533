package second

import (
	"context"
	"log/slog"
	"testing"

	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
)

// Without a logger of their own, locks log to slog.Default. A program may set that default at any time, and later warnings go to the new
// one.
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
	need.Equal(t, "lines in "+log.String(), len(log.Lines(slog.LevelWarn, `msg="a warning" path=/l`)), 1)
	need.Equal(t, "errors in "+log.String(), len(log.Lines(slog.LevelError, "a=1 g.b=2 g.c=3")), 1)
	need.Empty(t, "logged at INFO", log.Lines(slog.LevelInfo, ""))
	slog.SetDefault(slog.New(slog.DiscardHandler))
	need.That(t, "enabled although the default logs nothing", !logger.Enabled(context.Background(), slog.LevelError))
}
