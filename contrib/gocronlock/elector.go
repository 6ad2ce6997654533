package gocronlock

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tierlock/tierlock/contrib/internal/slot"
	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/tier"
)

// An Elector is a [gocron.Elector]: of all schedulers with an elector for one path, one runs jobs.
type Elector struct {
	election *election.Election
	path     string
	rule     slot.Rule

	log   *slog.Logger // which may block: nobody waits for it but Close, for a second
	flush func()

	stop  context.CancelFunc
	ended chan struct{} // closed when the campaign has ended
	err   error         // why, if Close has not ended it; valid then

	mu   sync.Mutex // guards the field below, and is held while the election is asked
	last time.Time  // when the last run was let begin
}

// NewElector takes part in the election at path until [Elector.Close]. It does not wait; until this
// process leads, no job runs here.
//
// [AtLeast] keeps the lead for at least d after the last run that it let begin, so that a leader
// whose clock is late does not run that slot again. [WithWait] has no meaning here. [WithLogger]
// sets where to say when this process begins to lead, and, as warnings, that the lead is lost
// and that the campaign has failed, which gocron does not say. [OnSlot] is told of the election's path,
// and in place of tier.ErrLocked [election.ErrNotLeader].
func NewElector(locks *tier.Registry, path string, opts ...Option) *Elector {
	e := &Elector{election: election.New(locks, path), path: path, ended: make(chan struct{})}
	for _, opt := range opts {
		opt.apply(&e.rule)
	}
	e.log, e.flush = notice.Aside(e.rule.Log)
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	go e.campaign(ctx)
	return e
}

// IsLeader returns nil while this process leads, by its own clock, and otherwise an error that wraps
// [election.ErrNotLeader]. gocron asks before each run. A run that has begun goes on when the lead
// is lost, and may then run beside those of the next leader: gocron has no way to tell it.
func (e *Elector) IsLeader(ctx context.Context) error {
	e.mu.Lock()
	err := e.election.IsLeader()
	if err == nil {
		e.last = time.Now()
	}
	e.mu.Unlock()
	e.rule.Tell(e.path, err)
	return err
}

// Close ends the campaign; if this process leads, it resigns, after the time of [AtLeast], for which
// Close waits. No run begins any more. Shut the scheduler down before, which waits for runs, and
// close the registry after. The error says why the campaign had ended before, such as a lack of
// permission. Close may be called again.
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
	e.mu.Lock() // whoever asks later is told that it does not lead
	last := e.last
	e.mu.Unlock()
	time.Sleep(time.Until(last.Add(e.rule.AtLeast)))
	return nil
}
