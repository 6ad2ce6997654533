package redislock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

const increment = `return redis.call('INCR', KEYS[1])`

// held returns a hold of a registry over a process.
func held(t *testing.T, p *process, opts ...tier.Option) (*tier.Registry, *tier.Hold) {
	t.Helper()
	locks, err := tier.New(p.tier, opts...)
	if err != nil {
		t.Fatal(err)
	}
	hold, err := locks.Mutex(lockPath(t)).Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return locks, hold
}

func counter(t *testing.T) string { return "counter:" + t.Name() }

func count(t *testing.T) string { return outside(t).Get(soon(t), counter(t)).Val() }

func TestEvalRunsAScriptWithItsKeysAndArguments(t *testing.T) {
	t.Parallel()
	_, hold := held(t, start(t))
	for script, want := range map[string]any{
		`return {KEYS[1], KEYS[2], #KEYS, ARGV[1], #ARGV}`: []any{"a", "b", int64(2), "x", int64(1)},
		`return 'text'`:             "text",
		`return nil`:                nil,
		`local x = 1`:               nil,
		`return redis.call('PING')`: "PONG",
		`if #ARGV > 5 then return 1 end return 2`: int64(2),
	} {
		got, err := Eval(soon(t), hold, script, []string{"a", "b"}, "x")
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v, %v, want %#v", script, got, err, want)
		}
	}
	for _, script := range []string{`return redis.error_reply('MINE refuses')`, `error('MINE refuses')`} {
		if got, err := Eval(soon(t), hold, script, nil); err == nil || !strings.Contains(err.Error(), "MINE refuses") {
			t.Errorf("%s: got %v, %v, want its error", script, got, err)
		}
	}
	if _, err := Eval(soon(t), hold, `syntax error`, nil); err == nil {
		t.Error("no error of a script that is none")
	}
	if !hold.Grant().Idle() {
		t.Error("not idle although all was answered")
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
	if _, err := Eval(soon(t), hold, increment, []string{counter(t)}); !errors.Is(err, tier.ErrReleased) {
		t.Errorf("after Release: %v, want ErrReleased", err)
	}
	if n := count(t); n != "" {
		t.Errorf("a script ran %s times after Release", n)
	}
}

// The server decides, not what the holder believes.
func TestEvalDoesNothingOnceTheLockIsAnothers(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(path, id string) error{
		"key deleted":     func(path, _ string) error { return outside(t).Del(soon(t), path).Err() },
		"key overwritten": func(path, _ string) error { return outside(t).Set(soon(t), path, "theirs", time.Minute).Err() },
		"key of another type": func(path, _ string) error {
			return errors.Join(outside(t).Del(soon(t), path).Err(), outside(t).RPush(soon(t), path, "x").Err())
		},
		"removed": func(path, id string) error { return outside(t).ZRem(soon(t), keysOf(path)[1], id).Err() },
		"lease expired": func(path, id string) error {
			return outside(t).ZAdd(soon(t), keysOf(path)[2], redis.Z{Score: 1, Member: id}).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, hold := held(t, start(t))
			if err := strike(lockPath(t), hold.Grant().(*queue.Contender).Ref().ID); err != nil {
				t.Fatal(err)
			}
			got, err := Eval(soon(t), hold, increment, []string{counter(t)})
			if !errors.Is(err, tier.ErrLost) || got != nil {
				t.Errorf("got %v, %v, want ErrLost", got, err)
			}
			if n := count(t); n != "" {
				t.Errorf("the script ran %s times", n)
			}
			if err := hold.Err(); !errors.Is(err, tier.ErrLost) {
				t.Errorf("then the hold says %v", err)
			}
		})
	}
}

// Readers have the lock as well, also behind another one, and who waits has not.
func TestEvalRunsForReadersAndNotForWhoWaits(t *testing.T) {
	t.Parallel()
	a, b := start(t), start(t)
	ours := tier.WithHandOff(0)
	hold := func(p *process) *tier.Hold {
		locks, err := tier.New(p.tier, ours)
		if err != nil {
			t.Fatal(err)
		}
		h, err := locks.RWMutex(lockPath(t)).AcquireRead(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	readers := []*tier.Hold{hold(a), hold(b)}
	for _, h := range readers {
		if _, err := Eval(soon(t), h, increment, []string{counter(t)}); err != nil {
			t.Errorf("a reader: %v", err)
		}
	}
	waits := b.anew(lockPath(t))
	b.does(t, queue.Command{Op: queue.Enter, Ref: waits})
	words, err := newScript(fmt.Sprintf(guarded, increment)).run(soon(t), outside(t), append(keysOf(waits.Path), counter(t)), waits.ID, "1").Slice()
	if err != nil || words[0] != "lost" {
		t.Errorf("who waits: %v, %v, want that it does not have the lock", words, err)
	}
	if n := count(t); n != "2" {
		t.Errorf("the script ran %s times, want 2", n)
	}
	b.does(t, queue.Command{Op: queue.Leave, Ref: waits})
	for _, h := range readers {
		if err := h.Release(); err != nil {
			t.Error(err)
		}
	}
}

// A client may repeat what was executed, and a server execute it late.
func TestEvalRunsAScriptOnceHoweverOftenItIsSent(t *testing.T) {
	t.Parallel()
	p := start(t)
	_, hold := held(t, p)
	c := hold.Grant().(*queue.Contender)
	key := []string{counter(t)}
	for range 2 {
		if _, err := Eval(soon(t), hold, increment, key); err != nil {
			t.Fatal(err)
		}
	}
	p.writerOf(c).writes-- // as if it had not counted
	if _, err := Eval(soon(t), hold, increment, key); !errors.Is(err, errAgain) || !errors.Is(err, tier.ErrUnknown) {
		t.Errorf("sent again: %v, want that it was executed", err)
	}
	if n := count(t); n != "2" {
		t.Errorf("executed %s times, want 2", n)
	}
	if !c.Idle() {
		t.Error("not idle although it is known what became of it")
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
	eventually(t, "nothing is kept of it", func() bool { _, kept := p.writers.Load(c.Ref().ID); return !kept })
}

func TestEvalsOfOneHoldGoOneAfterTheOther(t *testing.T) {
	t.Parallel()
	_, hold := held(t, start(t))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := Eval(soon(t), hold, increment, []string{counter(t)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := count(t); n != "20" {
		t.Errorf("executed %s times, want 20", n)
	}
}

// Until it is known what became of a script, the lock is not handed on within the process.
func TestEvalWithoutAnAnswerKeepsTheLockFromBeingHandedOn(t *testing.T) {
	t.Parallel()
	p := start(t)
	locks, hold := held(t, p, tier.WithHandOff(time.Hour))
	p.wire.on("script", func() bool { return true })
	if _, err := Eval(soon(t), hold, increment, []string{counter(t)}, "script"); err == nil {
		t.Error("no error although the answer was lost")
	}
	first := hold.Grant()
	if first.Idle() {
		t.Error("idle although a script may yet run")
	}
	next := make(chan *tier.Hold)
	go func() {
		h, err := locks.Mutex(lockPath(t)).Acquire(soon(t))
		if err != nil {
			t.Error(err)
		}
		next <- h
	}()
	time.Sleep(20 * time.Millisecond) // likely queued locally; true either way
	hold.Release()
	h := <-next
	if h.Grant() == first {
		t.Error("handed on within the process")
	}
	if err := h.Release(); err != nil {
		t.Error(err)
	}
}

func TestEvalSendsNothingWhenItsContextHasEnded(t *testing.T) {
	t.Parallel()
	_, hold := held(t, start(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Eval(ctx, hold, increment, []string{counter(t)}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
	if n := count(t); n != "" {
		t.Errorf("executed %s times", n)
	}
}

func TestEvalRefusesALockThatIsNotOnRedis(t *testing.T) {
	t.Parallel()
	locks, err := tier.New(elsewhere{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	hold, err := locks.Mutex("x").Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Release()
	if _, err := Eval(soon(t), hold, increment, nil); err == nil || !strings.Contains(err.Error(), "not on Redis") {
		t.Errorf("got %v, want that the lock is not on Redis", err)
	}
}

// elsewhere is another store, with a lock that nobody else wants.
type elsewhere struct{ second.Tier }

func (elsewhere) Claim(string, second.Options) (second.Claim, error) { return free{}, nil }
func (elsewhere) Err() error                                         { return nil }
func (elsewhere) Now() time.Duration                                 { return 0 }
func (elsewhere) Done() <-chan struct{}                              { return nil }
func (elsewhere) Close() error                                       { return nil }

// free is its claim and its grant.
type free struct {
	second.Claim
	second.Grant
}

func (f free) Acquire(context.Context, *second.Wait) (second.Grant, error) { return f, nil }
func (free) Context() context.Context                                      { return context.Background() }
func (free) Err() error                                                    { return nil }
func (free) ErrAt(time.Duration) error                                     { return nil }
func (free) Idle() bool                                                    { return true }
func (free) Leased() bool                                                  { return true }
func (free) Contested() *contention.Signal                                 { return contention.New(func() {}) }
func (free) Release() error                                                { return nil }

func TestEvalSaysWhetherItsOutcomeIsKnown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script string
		before func(p *process, cancel func())
		want   error
	}{
		"done":        {increment, func(*process, func()) {}, nil},
		"answer lost": {increment, func(p *process, _ func()) { p.wire.on("script", func() bool { return true }) }, tier.ErrUnknown},
		"ctx over first": {increment, func(p *process, cancel func()) {
			p.wire.on("script", func() bool { cancel(); return true })
		}, tier.ErrUnknown},
		"refused":   {`return redis.error_reply('READONLY You cannot write')`, func(*process, func()) {}, nil},
		"no script": {`syntax error`, func(*process, func()) {}, nil},
		"lost":      {increment, nil, tier.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			_, hold := held(t, p)
			ctx, cancel := context.WithCancel(soon(t))
			defer cancel()
			if errors.Is(tt.want, tier.ErrLost) {
				outside(t).Del(soon(t), lockPath(t))
			} else {
				tt.before(p, cancel)
			}
			_, err := Eval(ctx, hold, tt.script, []string{counter(t)}, "script")
			for _, is := range []error{tier.ErrUnknown, tier.ErrLost} {
				if errors.Is(err, is) != errors.Is(tt.want, is) {
					t.Errorf("%v: want %v alone", err, tt.want)
				}
			}
			if (err == nil) != (name == "done") {
				t.Errorf("error %v", err)
			}
		})
	}
}
