package gocronlock

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/tier"
)

// An Elector is a [gocron.Elector]. If several schedulers have electors with the same path, only one of these schedulers runs its jobs.
type Elector struct {
	election *election.Election
	path     string
	settings settings

	log   *slog.Logger // logs in the background, because the program's logger may block; Close waits for it for up to a second
	flush func()

	stop  context.CancelFunc
	ended chan struct{} // closed when the campaign has ended
	err   error         // why the campaign ended, unless Close has ended it; valid after ended is closed

	mu   sync.Mutex // guards the field below; it stays locked while IsLeader asks the election
	last time.Time  // the start of the last run that IsLeader has permitted
}

// NewElector campaigns in the election at path until [Elector.Close], and returns at once. While this process does not lead, it runs no
// jobs.
//
// With AtLeast(d), the process keeps the leadership for at least d after the start of its last run. Therefore a next leader whose clock is
// late does not run the same slot again. [WithWait] has no effect. The logger of [WithLogger] gets a line at the start of each term, and a
// warning when leadership is lost or the campaign ends. The callback of [OnSlot] gets the path of the election, and [election.ErrNotLeader]
// instead of tier.ErrLocked.
func NewElector(locks *tier.Registry, path string, opts ...Option) *Elector {
	e := &Elector{election: election.New(locks, path), path: path, ended: make(chan struct{})}
	for _, opt := range opts {
		opt.apply(&e.settings)
	}
	e.log, e.flush = notice.Aside(e.settings.Log)
	ctx, stop := context.WithCancel(context.Background()) // the campaign lasts until Close
	e.stop = stop
	go e.campaign(ctx)
	return e
}

// IsLeader returns nil while this process leads, by its own clock, and otherwise an error that wraps [election.ErrNotLeader]. gocron calls
// it before each run. Caution: gocron cannot interrupt a run when leadership is lost. The run may then overlap runs of the next leader.
func (e *Elector) IsLeader(ctx context.Context) error {
	e.mu.Lock()
	err := e.election.IsLeader()
	if err == nil {
		e.last = time.Now()
	}
	e.mu.Unlock()
	e.settings.Tell(e.path, err)
	return err
}

// Close ends the campaign, and resigns if this process leads. Close blocks until the time of [AtLeast] has passed. No further run begins.
// First shut down the scheduler, which waits for its runs. Then call Close, then close the registry. If the campaign had already ended,
// Close returns the reason, such as a missing permission. Close may be called again.
func (e *Elector) Close() error {
	e.stop()
	<-e.ended
	e.flush()
	return e.err
}

func (e *Elector) campaign(ctx context.Context) {
	defer close(e.ended)
	err := e.election.Run(ctx, e.lead)
	if ctx.Err() == nil {
		e.err = err
		e.log.Warn("campaign ended: this process runs no more jobs", "path", e.path, "error", err)
	}
}

func (e *Elector) lead(ctx context.Context, term int64) error {
	e.log.Info("leading: this process runs the jobs", "path", e.path, "term", term)
	<-ctx.Done()
	if err := context.Cause(ctx); errors.Is(err, tier.ErrLost) {
		e.log.Warn("leadership lost: another process may run jobs, too", "path", e.path, "term", term, "error", err)
		return nil
	}
	e.mu.Lock() // waits for a running call of IsLeader; each later call returns an error
	last := e.last
	e.mu.Unlock()
	time.Sleep(time.Until(last.Add(e.settings.AtLeast)))
	return nil
}
