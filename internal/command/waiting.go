package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// A waiting is the time before the lock is acquired.
type waiting struct {
	in      *invocation
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
	queue := w.queue()
	if w.verbose || w.nested(queue) {
		w.in.say("%s: waiting: %s", w.mutex.Path(), w.describe(queue))
	}
}

// inTheWay says who had the lock just now.
func (w *waiting) inTheWay() string { return w.describe(w.queue()) }

// queue returns the holder and whoever waits, nothing if that cannot be found out soon.
func (w *waiting) queue() []tier.Contender {
	soon, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	queue, _ := w.mutex.Contenders(soon)
	return queue
}

func (w *waiting) describe(queue []tier.Contender) string {
	if len(queue) == 0 {
		return "nobody has it any more"
	}
	holder := queue[0]
	who := holder.ID
	if holder.PID != 0 {
		who = fmt.Sprintf("process %d on %s", holder.PID, holder.Host)
	}
	if holder.Label != "" {
		who += fmt.Sprintf(" (%s)", holder.Label)
	}
	if w.nested(queue) {
		return "held by the tierlock run that this one runs under, " + who + ": it would wait for itself"
	}
	return "held by " + who
}

// nested reports whether the holder is the run that this process is a part of.
func (w *waiting) nested(queue []tier.Contender) bool {
	return len(queue) > 0 && os.Getenv("TIERLOCK_PATH") == w.mutex.Path() &&
		os.Getenv("TIERLOCK_TOKEN") == strconv.FormatInt(queue[0].Token, 10)
}

// limit is what an error says about a limit of the wait.
func (w *waiting) limit(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf(" within %v", d)
}
