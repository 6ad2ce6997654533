package second

import (
	"context"
	"log/slog"
)

// A warner passes warnings, and nothing below, on to slog.Default() as it is at that time: a program may set it after it has connected.
type warner struct {
	now func() slog.Handler // that of slog.Default(), with what was added to this one
}

func (w warner) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.now().Enabled(ctx, level)
}

func (w warner) Handle(ctx context.Context, r slog.Record) error { return w.now().Handle(ctx, r) }

func (w warner) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warner{func() slog.Handler { return w.now().WithAttrs(attrs) }}
}

func (w warner) WithGroup(name string) slog.Handler {
	return warner{func() slog.Handler { return w.now().WithGroup(name) }}
}
