package redislock

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed script.lua
var text string

// script is all that is done to locks. Each operation is about a contender with an id of its own,
// so that to repeat it does no harm.
var script = redis.NewScript(text)

// once is a command that the client does not repeat by itself: whoever sent it wants to know
// whether it may have been executed twice.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// eval runs a script once, or twice if the server has to be told its text.
func eval(ctx context.Context, client redis.UniversalClient, s *redis.Script, text string, keys []string, args ...any) *redis.Cmd {
	send := func(name, what string) *redis.Cmd {
		words := make([]any, 0, 3+len(keys)+len(args))
		words = append(words, name, what, len(keys))
		for _, key := range keys {
			words = append(words, key)
		}
		cmd := redis.NewCmd(ctx, append(words, args...)...)
		client.Process(ctx, once{cmd}) // whose error is the command's
		return cmd
	}
	cmd := send("evalsha", s.Hash())
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return send("eval", text)
	}
	return cmd
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

// do runs an operation and returns the answer of the script.
func (l *claim) do(ctx context.Context, op, id string, more ...string) ([]string, error) {
	s := l.store
	return call(s, ctx, func(ctx context.Context) ([]string, error) {
		for addr, p := s.primaryOf(ctx, l.path); ; {
			words, err := eval(ctx, s.client, script, text, l.keys, s.args(p, op, id, more...)...).StringSlice()
			if err != nil || !introduced(words) {
				return words, advise(err, patterns(l.path)...)
			}
			if p, err = s.meet(ctx, addr, words); err != nil {
				return nil, err
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
	})
}
