package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
)

const ttl = 6 * time.Second // of the sessions of a fake; Patience is then a second

// A fake is a store that grants every lock at once. A test can replace the answer to any command.
type fake struct {
	*Tier
	testing.TB
	log *logtest.Log

	mu     sync.Mutex // guards the fields below
	next   map[Op][]reply
	refuse map[string]reply // by path: the reply to an Enter
	sent   []Command
	number int64
	places map[string]int64 // by ID: the tokens of the contenders in the queue
	reader bool             // views say that a reader is right behind
	told   []string         // the calls of Follow and Unfollow
	name   string           // the name of every contender; "" for a new name each time

	meanwhile func() // called during Name and Unfollow
}

// A reply decides how the store treats one command. usual executes the command.
type reply func(ctx context.Context, c Command, usual func() Answer) Answer

type follower struct{ *fake }

func (f follower) Follow(r Ref)   { f.tell("follow " + r.ID) }
func (f follower) Unfollow(r Ref) { f.tell("unfollow " + r.ID); f.meanwhile() }

func (f *fake) tell(s string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, s)
}

// play runs a test in a bubble of testing/synctest, with a tier that has a session.
func play(t *testing.T, config Config, test func(*testing.T, *fake)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, config)
		f.Start()
		synctest.Wait()
		defer f.Close()
		test(t, f)
	})
}

// each plays a test for each case.
func each[C any](t *testing.T, cases map[string]C, test func(*testing.T, *fake, C)) {
	t.Helper()
	need.Each(t, cases, func(t *testing.T, c C) {
		play(t, Config{}, func(t *testing.T, f *fake) { test(t, f, c) })
	})
}

// playFrom is like play, and also lets the test set replies for the first session, in begin.
func playFrom(t *testing.T, begin func(*fake), test func(*testing.T, *fake)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, Config{})
		begin(f)
		f.Start()
		defer f.Close()
		test(t, f)
	})
}

func playFollowed(t *testing.T, test func(*testing.T, *fake)) {
	playFrom(t, func(f *fake) { f.store, f.follower = follower{f}, follower{f} }, test)
}

func newFake(t *testing.T, config Config) *fake {
	f := &fake{TB: t, next: make(map[Op][]reply), places: make(map[string]int64), meanwhile: func() {}}
	f.log, config.Logger = logtest.New(slog.LevelDebug)
	config.Package, config.Store, config.TTL = "fake", "Fake", ttl
	config.Lost = func(r Ref) string { return r.ID + " was removed" }
	f.Tier = New(config, f)
	return f
}

// logged returns the log when all pending lines are written.
func (f *fake) logged() *logtest.Log {
	synctest.Wait()
	return f.log
}

func (f *fake) Name(string) string {
	f.meanwhile()
	return cmp.Or(f.name, fmt.Sprint("c", f.count()))
}

// Close is called by the tier, or by a test that closes the tier.
func (f *fake) Close() {
	if f.ctx.Err() == nil {
		f.Tier.Close()
	}
}

func (f *fake) count() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.number++
	return f.number
}

func (f *fake) Do(ctx context.Context, c Command) Answer {
	f.mu.Lock()
	f.sent = append(f.sent, c)
	var next reply
	if all := f.next[c.Op]; len(all) > 0 {
		next, f.next[c.Op] = all[0], all[1:]
	} else if c.Op == Enter {
		next = f.refuse[c.Path]
	}
	f.mu.Unlock()
	if next != nil {
		return next(ctx, c, func() Answer { return f.execute(c) })
	}
	return f.execute(c)
}

func (f *fake) execute(c Command) Answer {
	at := f.count()
	f.mu.Lock()
	defer f.mu.Unlock()
	view := func(id string) View {
		token := f.places[id]
		return View{ID: id, At: at, Token: token, Known: token > 0, Has: token > 0, Behind: f.reader, Reader: f.reader}
	}
	remove := func(id string) Removal {
		if f.places[id] == 0 {
			return Missing
		}
		delete(f.places, id)
		return Removed
	}
	a := Answer{Outcome: Done}
	switch c.Op {
	case Open:
		a.Name, a.TTL = fmt.Sprint("s", at), ttl
	case Beat:
		for _, r := range c.Among {
			a.Views = append(a.Views, view(r.ID))
		}
	case Enter, Try:
		if c.Old.ID != "" {
			a.Removed = remove(c.Old.ID)
		}
		if f.places[c.ID] == 0 {
			f.places[c.ID] = at
		}
		a.View = view(c.ID)
	case Look, Share, Weigh:
		a.View = view(c.ID)
		a.View.Reads = c.Op == Share
	case Leave:
		a.Removed = remove(c.ID)
	case List:
		for id, token := range f.places {
			a.Queue = append(a.Queue, second.Contender{ID: id, Token: token})
		}
	case Audit:
		for id, token := range f.places {
			a.Present = append(a.Present, Ref{Path: "/l", ID: id, Token: token})
		}
	case Drop, Goodbye:
		for _, r := range c.Among {
			remove(r.ID)
		}
	}
	return a
}

// fake.then sets the replies to the next commands of a kind.
func (f *fake) then(op Op, replies ...reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next[op] = append(f.next[op], replies...)
}

// fake.many sets the same reply for the next n commands of a kind.
func (f *fake) many(op Op, n int, r reply) { f.then(op, slices.Repeat([]reply{r}, n)...) }

// within returns a context that ends with the test, or after d.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

var (
	errAway    = errors.New("no answer")
	errRefused = errors.New("not permitted")
)

// The reply lost executes the command and loses the answer.
func lost(ctx context.Context, _ Command, usual func() Answer) Answer {
	usual()
	return never(ctx, Command{}, nil)
}

// The reply never neither executes nor answers the command.
func never(ctx context.Context, _ Command, _ func() Answer) Answer {
	<-ctx.Done()
	return Answer{Err: context.Cause(ctx), Away: errAway}
}

func says(a Answer) reply {
	return func(context.Context, Command, func() Answer) Answer { return a }
}

// A reply late executes the command at once and delays the answer by d.
func late(d time.Duration) reply {
	return func(_ context.Context, _ Command, usual func() Answer) Answer {
		a := usual()
		time.Sleep(d)
		return a
	}
}

// but(change) returns a reply that executes the command and changes its answer.
func but(change func(*Answer)) reply {
	return func(_ context.Context, _ Command, usual func() Answer) Answer {
		a := usual()
		change(&a)
		return a
	}
}

var (
	// The reply waits executes the command, and answers that the contender has to wait and to poll.
	waits = but(func(a *Answer) { a.View.Has, a.View.Ahead, a.View.Again = false, 1, time.Millisecond })
	// The reply untold executes the command, and answers only that the contender has to wait, but not behind which ones.
	untold = but(func(a *Answer) { a.View.Has = false })
)

// The reply expired answers that the session does not exist, and removes all contenders.
func (f *fake) expired(context.Context, Command, func() Answer) Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.places)
	return Answer{Outcome: Expired, Err: errors.New("no such session")}
}

// ops returns the commands of the given kinds that were sent, without those of the first session.
func (f *fake) ops(kinds ...Op) (sent []Command) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.sent {
		for _, k := range kinds {
			if c.Op == k {
				sent = append(sent, c)
			}
		}
	}
	return sent
}

var wantErr = need.WantErr

func (f *fake) claim(mode second.Mode) second.Claim {
	return need.Get(f.Claim("/l", second.Options{Mode: mode}))(f.TB)
}

func (f *fake) acquire(mode second.Mode) *Contender {
	f.Helper()
	g := need.Get(f.claim(mode).Acquire(f.TB.Context(), new(second.Wait)))(f.TB)
	return g.(*Contender)
}

// queues reports whether a contender is in the queue.
func (f *fake) queues(c *Contender) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.places[c.id] != 0
}

// remove deletes a contender and sends no notification.
func (f *fake) remove(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.places, id)
}

// fake.none checks that no contender is left, neither in the store nor in the process.
func (f *fake) none() {
	f.Helper()
	synctest.Wait()
	f.mu.Lock()
	there := len(f.places)
	f.mu.Unlock()
	need.Equal(f.TB, "left here", f.Left(), 0)
	need.Equal(f.TB, "left there", there, 0)
}
