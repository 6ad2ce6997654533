package second

import (
	"context"
	"log/slog"
)

// A warner is a handler that passes lines of level Warn and above on to slog.Default(). It reads the default logger at each line, since a
// program may set it after it has connected. The function returns the handler of the present default logger, with the attributes and groups
// with which the warner was made.
type warner func() slog.Handler

func (now warner) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && now().Enabled(ctx, level)
}

func (now warner) Handle(ctx context.Context, r slog.Record) error { return now().Handle(ctx, r) }

func (now warner) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warner(func() slog.Handler { return now().WithAttrs(attrs) })
}

func (now warner) WithGroup(name string) slog.Handler {
	return warner(func() slog.Handler { return now().WithGroup(name) })
}
