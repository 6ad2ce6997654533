package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const (
	path           = "/elections/a"
	sessionTimeout = locktest.SessionTimeout
)

var bubble, dial = locktest.InMemory, locktest.Join

func registry(t *testing.T, s *memory.Server, label string, opts ...tier.Option) *tier.Registry {
	t.Helper()
	locks, _ := dial(t, s, label, opts...)
	return locks
}

// A process is a candidate whose terms the test controls.
type process struct {
	*election.Election
	t     *testing.T
	label string
	diary *diary

	reign chan error         // receives the result of the leading function, which ends the term
	ctx   context.Context    // the context of Run
	stop  context.CancelFunc // ends Run
	ended chan struct{}      // closed when Run has returned
	err   error              // the error that Run has returned, or the value with which it has panicked
	lead  func(ctx context.Context, term int64) error
}

// A diary records the terms of all processes.
type diary struct {
	mu      sync.Mutex // guards the fields below
	leading string
	last    int64
	leaders []string // in the order of their terms
}

// begin is called in the function that leads.
func (d *diary) begin(t *testing.T, label string, term int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	need.Equal(t, "who leads when "+label+" begins to", d.leading, "")
	need.AtLeast(t, "the term of "+label, term, d.last+1)
	d.leading, d.last = label, term
	d.leaders = append(d.leaders, label)
}

func (d *diary) end(t *testing.T, label string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	need.Equal(t, "who leads", d.leading, label)
	d.leading = ""
}

// reigns returns the leaders so far, in the order of their terms, and the last term.
func (d *diary) reigns() (leaders []string, last int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.leaders), d.last
}

func (d *diary) leader() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leading
}

// newProcess creates a candidate, but does not run it. When it runs and leads, it leads until its context ends or the test sends to reign.
func newProcess(t *testing.T, s *memory.Server, d *diary, label string) *process {
	t.Helper()
	return candidateOf(t, registry(t, s, label), d, label)
}

func candidateOf(t *testing.T, locks *tier.Registry, d *diary, label string) *process {
	p := &process{Election: election.New(locks, path), t: t, label: label, diary: d, reign: make(chan error)}
	p.lead = func(ctx context.Context, term int64) error {
		p.diary.begin(t, label, term)
		defer p.diary.end(t, label)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-p.reign:
			return err
		}
	}
	return p
}

// run starts Run, and returns once the bubble is idle.
func (p *process) run() *process {
	p.ctx, p.stop = context.WithCancel(p.t.Context())
	p.ended = make(chan struct{})
	go func() {
		defer close(p.ended)
		defer func() {
			if r := recover(); r != nil {
				p.err = fmt.Errorf("panic: %v", r)
			}
		}()
		p.err = errors.New("the goroutine has ended")
		p.err = p.Run(p.ctx, p.lead)
	}()
	p.t.Cleanup(func() { p.stop(); <-p.ended })
	synctest.Wait()
	return p
}

// start creates candidates and runs them.
func start(t *testing.T, s *memory.Server, d *diary, labels ...string) (all []*process) {
	t.Helper()
	for _, label := range labels {
		all = append(all, newProcess(t, s, d, label).run())
	}
	return all
}

// leads checks that p leads, and that no other process believes that it leads.
func (p *process) leads(others ...*process) {
	p.t.Helper()
	synctest.Wait()
	if got := p.diary.leader(); got != p.label {
		p.t.Fatalf("%q leads, want %s", got, p.label)
	}
	need.WantErr(p.t, "IsLeader of "+p.label+", which leads", p.IsLeader(), nil)
	for _, other := range others {
		other.follows()
	}
}

func (p *process) follows() {
	p.t.Helper()
	need.WantErr(p.t, "IsLeader of "+p.label+", which does not lead", p.IsLeader(), election.ErrNotLeader)
}

// returns checks the result of Run.
func (p *process) returns(want error) {
	p.t.Helper()
	<-p.ended
	if !errors.Is(p.err, want) || want == nil && p.err != nil {
		p.t.Errorf("Run of %s: got %v, want %v", p.label, p.err, want)
	}
	p.follows()
}
