package notice

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
)

// A gated handler blocks in each call, also of Enabled, until the channel open is closed.
type gated struct {
	slog.Handler
	open chan struct{}
}

func (g gated) Enabled(ctx context.Context, level slog.Level) bool {
	<-g.open
	return g.Handler.Enabled(ctx, level)
}

func (g gated) WithAttrs(attrs []slog.Attr) slog.Handler {
	<-g.open
	return g.Handler.WithAttrs(attrs)
}

func (g gated) WithGroup(name string) slog.Handler {
	<-g.open
	return g.Handler.WithGroup(name)
}

func TestLoggerThatHangsDelaysNoCallAndLosesNoMoreThanItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logger := logtest.New(slog.LevelInfo)
		open := make(chan struct{})
		aside, flush := Aside(slog.New(gated{logger.Handler(), open}))
		begun := time.Now()
		with := aside.With("a", 1).WithGroup("g")
		with.Info("first", "b", 2)
		synctest.Wait() // waits until the handler has the first line
		for n := range room + 5 {
			aside.Info(fmt.Sprintf("line %d.", n))
		}
		aside.Debug("which it would not have written")
		need.Equal(t, "waited", time.Since(begun), 0)
		flush()
		need.Equal(t, "a flush in vain takes", time.Since(begun), flushTime)
		close(open)
		flush()
		aside.Info("last")
		flush()
		need.Equal(t, "a flush takes", time.Since(begun), flushTime)
		need.Equal(t, "first line", strings.Count(log.String(), "msg=first a=1 g.b=2"), 1)
		var at int
		for n := range room {
			next := strings.Index(log.String(), fmt.Sprintf("line %d.", n))
			need.That(t, fmt.Sprintf("line %d is missing, or not in order, in\n%s", n, log), next > at)
			at = next
		}
		missing := strings.Index(log.String(), "lines were dropped because")
		need.That(t, fmt.Sprintf("the report of missing lines is not where they are missing, in\n%s", log),
			at < missing && missing < strings.Index(log.String(), "msg=last"))
		need.Equal(t, "reports of 5 missing lines", strings.Count(log.String(), "lines=5\n"), 1)
	})
}

// The line that reports dropped lines comes before the next line that was not dropped.
func TestLinesAreMissingWhereItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logger := logtest.New(slog.LevelInfo)
		turn := make(chan struct{})
		aside, flush := Aside(slog.New(gated{logger.Handler(), turn}))
		aside.Info("first")
		synctest.Wait()
		for range room + 1 {
			aside.Info("more")
		}
		turn <- struct{}{}
		synctest.Wait()
		aside.Info("next")
		close(turn)
		flush()
		need.That(t, "in\n"+log.String(), strings.Contains(log.String(), "lines=1\n") &&
			strings.Index(log.String(), "lines=1\n") < strings.Index(log.String(), "msg=next"))
	})
}

// If a handler calls runtime.Goexit, only the line of that call is lost. If it panics, the process ends, as with a panic in any goroutine.
func TestHandlerThatEndsItsGoroutineLosesNoOtherLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logger := logtest.New(slog.LevelInfo)
		aside, flush := Aside(slog.New(ending{logger.Handler()}))
		for _, line := range []string{"before", "end", "after"} {
			aside.Info(line)
		}
		flush()
		need.Has(t, "the log", log.String(), "msg=before", "msg=after")
	})
}

type ending struct{ slog.Handler }

func (e ending) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "end" {
		runtime.Goexit()
	}
	return e.Handler.Handle(ctx, r)
}
