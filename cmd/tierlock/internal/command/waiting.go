package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// A waiting has the state of a run that waits for the lock or the permits.
type waiting struct {
	in      *invocation
	locks   *tier.Registry
	path    string
	claim   claim
	begun   time.Time
	verbose bool
}

var errWaited = errors.New("the time limit of -w has passed")

// acquire waits for the claim. If limit is not 0, it limits the wait.
func (w *waiting) acquire(ctx context.Context, limit time.Duration) (hold, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errWaited)
		defer cancel()
	}
	patience := time.AfterFunc(time.Second, w.explain)
	defer patience.Stop()
	hold, err := w.claim.acquire(ctx)
	if err == nil && w.verbose {
		w.in.say("%s: acquired after %v, token %d", w.path, time.Since(w.begun).Round(time.Millisecond), hold.Token())
	}
	return hold, err
}

// explain prints for which process this process waits. It does so with -v, or if the wait is unexpected.
func (w *waiting) explain() {
	contenders, err := w.contenders()
	if errors.Is(err, tier.ErrClosed) { // the wait has ended
		return
	}
	if w.verbose || w.claim.outer(contenders) >= 0 {
		w.in.say("%s: waiting: %s", w.path, w.describe(contenders, err))
	}
}

// inTheWay returns why an acquisition has failed. It names the present holder, or describes the grace period.
func (w *waiting) inTheWay(err error) string {
	if q := gracePeriodOf(err); q != nil {
		return q.Error()
	}
	return w.describe(w.contenders())
}

// The method contenders reads the contenders of the claim. If the store does not answer within a second, it returns an error.
func (w *waiting) contenders() ([]tier.Contender, error) {
	soon, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return w.claim.Contenders(soon)
}

func (w *waiting) describe(contenders []tier.Contender, err error) string {
	if err != nil {
		return fmt.Sprintf("the holder is not known: %v", err)
	}
	if i := w.claim.outer(contenders); i >= 0 {
		return "held by the tierlock run that started this one, " + nameOf(&contenders[i]) + ": a deadlock"
	}
	if who := w.claim.inTheWay(contenders); who != "" {
		return who
	}
	if q := gracePeriodOf(w.locks.Err()); q != nil {
		return q.Error()
	}
	return "the lock has just become free"
}

// gracePeriodOf returns the grace period that is in err. It returns nil if there is none.
func gracePeriodOf(err error) (q *tier.GracePeriodError) {
	errors.As(err, &q)
	return q
}

// The method limit returns a text about the time limit of the wait.
func (w *waiting) limit(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf(" within %v", d)
}

// The method logger returns a logger for problems with the servers. Without -v it returns nil.
func (o *runOptions) logger(in *invocation) *slog.Logger {
	if !o.verbose {
		return nil
	}
	return in.logger()
}

// The method logger returns a logger whose warnings are messages of this process.
func (in *invocation) logger() *slog.Logger {
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

// A messages prints log lines as messages of this process.
type messages struct{ in *invocation }

func (m messages) Write(line []byte) (int, error) {
	m.in.say("%s", bytes.TrimSuffix(line, []byte("\n")))
	return len(line), nil
}
