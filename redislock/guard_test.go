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

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

const increment = `return redis.call('INCR', KEYS[1])`

// The type held is a hold with a script that increments a counter in Redis.
type held struct {
	*tier.Hold
	process *process
	t       *testing.T
}

func hold(t *testing.T, opts ...tier.RegistryOption) held {
	t.Helper()
	p := start(t, append([]tier.RegistryOption{tier.WithLeaseTTL(long)}, opts...)...)
	h := need.Get(tier.New(p.tier).Mutex(lockPath(t)).Acquire(soon(t)))(t)
	return held{h, p, t}
}

func (h held) contender() *queue.Contender { return waittest.Grant(h.Hold).(*queue.Contender) }

// counts runs the script once. By the argument "script", a wire recognizes the request.
func (h held) counts(ctx context.Context) error {
	_, err := Eval(ctx, h.Hold, increment, []string{counter(h.t)}, "script")
	return err
}

func counter(t *testing.T) string { return "counter:" + t.Name() }

// counted checks how often the script was executed.
func counted(t *testing.T, want string) {
	t.Helper()
	need.Equal(t, "runs of the script", outside(t).Get(soon(t), counter(t)).Val(), want)
}

func TestEvalRunsAScriptWithItsKeysAndArguments(t *testing.T) {
	t.Parallel()
	h := hold(t)
	for script, want := range map[string]any{
		`return {KEYS[1], KEYS[2], #KEYS, ARGV[1], #ARGV}`: []any{"a", "b", int64(2), "x", int64(1)},
		`return 'text'`:             "text",
		`return nil`:                nil,
		`local x = 1`:               nil,
		`return redis.call('PING')`: "PONG",
		`if #ARGV > 5 then return 1 end return 2`: int64(2),
	} {
		got := need.Get(Eval(soon(t), h.Hold, script, []string{"a", "b"}, "x"))(t)
		need.That(t, fmt.Sprintf("%s: got %#v, want %#v", script, got, want), reflect.DeepEqual(got, want))
	}
	for script, want := range map[string]string{
		`return redis.error_reply('MINE refuses')`: "MINE refuses", `error('MINE refuses')`: "MINE refuses",
		`return redis.error_reply('READONLY You cannot write')`: "READONLY", `syntax error`: "compiling",
	} {
		got, err := Eval(soon(t), h.Hold, script, nil)
		need.That(t, fmt.Sprintf("%s: got %v, %v, want its error alone", script, got, err),
			err != nil && strings.Contains(err.Error(), want) && !errors.Is(err, tier.ErrUnknown) && !errors.Is(err, tier.ErrLost))
	}
	need.That(t, "not idle although all was answered", waittest.Grant(h.Hold).Idle())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, h.counts(over), context.Canceled)
	mustRelease(t, h)
	wantErr(t, h.counts(soon(t)), tier.ErrReleased)
	counted(t, "")
}

// The server decides whether the holder still has the lock, even if the holder does not know of its loss. The answer then ends the hold at
// once.
func TestEvalDoesNothingOnceTheLockIsAnothers(t *testing.T) {
	t.Parallel()
	need.Each(t, map[string]func(path, id string) error{
		"key overwritten": func(path, _ string) error { return outside(t).Set(soon(t), path, "theirs", time.Minute).Err() },
		"key of another type": func(path, _ string) error {
			return errors.Join(outside(t).Del(soon(t), path).Err(), outside(t).RPush(soon(t), path, "x").Err())
		},
		"state forgotten": func(path, _ string) error { return outside(t).Del(soon(t), keysOf(path)[3]).Err() },
		"removed":         func(path, id string) error { return outside(t).ZRem(soon(t), keysOf(path)[1], id).Err() },
		"lease forgotten": func(path, id string) error { return outside(t).ZRem(soon(t), keysOf(path)[2], id).Err() },
		"lease expired": func(path, id string) error {
			return outside(t).ZAdd(soon(t), keysOf(path)[2], redis.Z{Score: 1, Member: id}).Err()
		},
	}, func(t *testing.T, strike func(path, id string) error) {
		t.Parallel()
		h := hold(t)
		need.OK(t, strike(lockPath(t), h.contender().Ref().ID))
		wantErr(t, h.counts(soon(t)), tier.ErrLost)
		wantErr(t, h.Err(), tier.ErrLost)
		counted(t, "")
	})
}

// Eval runs the script for each reader that holds the lock, also for one behind another reader. For a waiter it does not run the script.
func TestEvalRunsForReadersAndNotForWhoWaits(t *testing.T) {
	t.Parallel()
	a, b := start(t, tier.WithLeaseTTL(long)), start(t, tier.WithLeaseTTL(long))
	for _, p := range []*process{a, b} {
		h := need.Get(tier.New(p.tier).RWMutex(lockPath(t)).Reader().Acquire(soon(t)))(t)
		defer h.Release()
		wantErr(t, (held{h, p, t}).counts(soon(t)), nil)
	}
	waits := b.anew(lockPath(t))
	b.stands(t, queue.Enter, waits, 0)
	script, keys := newScript(fmt.Sprintf(guarded, increment)), append(keysOf(waits.Path), counter(t))
	words := need.Get(script.run(soon(t), outside(t), keys, "1", "1", waits.ID).Slice())(t)
	need.Equal(t, "the answer to a waiter", words[0], "lost")
	counted(t, "2")
	b.leaves(t, waits)
}

// A client may repeat a script that was executed, and a server may execute a script late. The scripts of a hold are therefore sent one
// after another, and each runs once.
func TestEvalRunsAScriptOnceHoweverOftenItIsSent(t *testing.T) {
	t.Parallel()
	h := hold(t)
	c := h.contender()
	h.process.wire.on("script", func() bool {
		if c.Turn.TryLock() {
			c.Turn.Unlock()
			t.Error("another script may run meanwhile")
		}
		return false
	})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { need.WantErr(t, "Eval", h.counts(soon(t)), nil) })
	}
	all.Wait()
	h.process.writes.Add(-1) // the next write gets the same number as the last one
	err := h.counts(soon(t))
	wantErr(t, err, errAgain)
	wantErr(t, err, tier.ErrUnknown)
	need.That(t, "not idle although the outcome is known", c.Idle())
	// The hold may have been released while the script waited for others. Then the script is not sent.
	given := func() error { return tier.ErrReleased }
	_, outcome, err := h.process.write([]*queue.Contender{c}, given, increment, []string{counter(t)}, nil)
	need.Equal(t, "given up: the outcome", outcome, queue.Failed)
	need.WantErr(t, "given up", err, tier.ErrReleased)
	counted(t, "20")
	// Until the outcome of the script is known, the lock is not handed off within the process.
	h.process.wire.on("script", func() bool { return true })
	err = h.counts(soon(t))
	wantErr(t, err, tier.ErrUnknown)
	need.That(t, fmt.Sprintf("without an answer: %v, idle: %t", err, c.Idle()), !errors.Is(err, tier.ErrLost) && !c.Idle())
	mustRelease(t, h)
}
