package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// A waiting is the time before the lock is acquired.
type waiting struct {
	in      *invocation
	locks   *tier.Registry
	mutex   *tier.Mutex
	begun   time.Time
	verbose bool
}

var errWaited = errors.New("waited for as long as -w says")

// acquire waits for the lock, if limit is not 0 for that long at most.
func (w *waiting) acquire(ctx context.Context, limit time.Duration) (*tier.Hold, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errWaited)
		defer cancel()
	}
	patience := time.AfterFunc(time.Second, w.explain)
	defer patience.Stop()
	hold, err := w.mutex.Acquire(ctx)
	if err == nil && w.verbose {
		w.in.say("%s: acquired after %v, token %d", w.mutex.Path(), time.Since(w.begun).Round(time.Millisecond), hold.Token())
	}
	return hold, err
}

// explain says for whom it waits, if somebody wants to know or nobody expects it.
func (w *waiting) explain() {
	holder, err := w.holder()
	if w.verbose || holder != nil && w.under(holder) {
		w.in.say("%s: waiting: %s", w.mutex.Path(), w.describe(holder, err))
	}
}

// inTheWay says why an acquisition has failed: who had the lock just now, or that nobody can have it.
func (w *waiting) inTheWay(err error) string {
	if q := quarantineOf(err); q != nil {
		return q.Error()
	}
	return w.describe(w.holder())
}

// holder returns who has the lock, nil if nobody has, or an error if that cannot be found out soon.
func (w *waiting) holder() (*tier.Contender, error) {
	soon, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	queue, err := w.mutex.Contenders(soon)
	if len(queue) == 0 {
		return nil, err
	}
	return &queue[0], nil
}

func (w *waiting) describe(holder *tier.Contender, err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf("who has it is not known: %v", err)
	case holder == nil || holder.Quarantined:
		if q := quarantineOf(w.locks.Err()); q != nil {
			return q.Error()
		}
		return "nobody has it any more"
	}
	who := holder.ID
	if holder.PID != 0 {
		who = fmt.Sprintf("process %d on %s", holder.PID, holder.Host)
	}
	if holder.Label != "" {
		who += fmt.Sprintf(" (%s)", holder.Label)
	}
	if w.under(holder) {
		return "held by the " + w.in.store.Program + " run that this one runs under, " + who + ": it would wait for itself"
	}
	return "held by " + who
}

// quarantineOf is the one that an error tells of, nil if it tells of none.
func quarantineOf(err error) (q *tier.QuarantineError) {
	errors.As(err, &q)
	return q
}

// under reports whether the holder is the run that this process is a part of.
func (w *waiting) under(holder *tier.Contender) bool {
	return os.Getenv("TIERLOCK_PATH") == w.mutex.Path() && os.Getenv("TIERLOCK_TOKEN") == strconv.FormatInt(holder.Token, 10)
}

// limit is what an error says about a limit of the wait.
func (w *waiting) limit(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf(" within %v", d)
}

// logger reports trouble with the servers, if somebody wants to know.
func (o *runOptions) logger(in *invocation) *slog.Logger {
	if !o.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(messages{in}, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// messages are written as those of this process.
type messages struct{ in *invocation }

func (m messages) Write(line []byte) (int, error) {
	m.in.say("%s", bytes.TrimSuffix(line, []byte("\n")))
	return len(line), nil
}
