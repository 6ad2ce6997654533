package redislock

import (
	"cmp"
	"context"
	"embed"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/queue"
)

//go:embed *.lua
var files embed.FS

var (
	lockScript   = load("script.lua") // all that is done to locks; to repeat it does no harm
	recordScript = load("record.lua")
	aclScript    = load("acl.lua")
)

// A script is run by its hash, and by its text if the server does not know it yet.
type script struct{ text, hash string }

func newScript(text string) script { return script{text, redis.NewScript(text).Hash()} }

func load(name string) script {
	text, _ := files.ReadFile(name) // it is there
	return newScript(string(text))
}

// once is a command that the client does not repeat by itself, because the caller has to know whether it may have been executed twice.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// run runs a script, and once more with its text if the server did not know it.
func (x script) run(ctx context.Context, client redis.UniversalClient, keys []string, args ...any) *redis.Cmd {
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
	cmd := send("evalsha", x.hash)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return send("eval", x.text)
	}
	return cmd
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

// args returns the script's arguments for an operation.
func (s *store) args(op string, c queue.Ref, more ...any) []any {
	return append([]any{op, micros(s.options.TTL), micros(s.gracePeriod()), c.ID, s.met(), c.Permits}, more...)
}

// run runs an operation and returns the script's answer.
func (s *store) run(ctx context.Context, op string, c queue.Ref, more ...any) ([]string, error) {
	for {
		words, err := lockScript.run(ctx, s.client, append(keysOf(at(c)), valueOf(c.Path)), s.args(op, c, more...)...).StringSlice()
		if err != nil || !introduced(words) {
			return words, advise(err, patterns(c.Path)...)
		}
		if err = cmp.Or(s.meet(ctx, words), context.Cause(ctx)); err != nil {
			return nil, err
		}
	}
}

// send runs an operation for several contenders in one pipeline. An error for one of them is in its command.
func (s *store) send(ctx context.Context, op string, some []queue.Ref) ([]*redis.Cmd, error) {
	for {
		var cmds []*redis.Cmd
		s.client.Pipelined(ctx, func(p redis.Pipeliner) error { // whose error is one of the commands'
			for _, c := range some {
				cmds = append(cmds, p.EvalSha(ctx, lockScript.hash, keysOf(at(c)), s.args(op, c)...))
			}
			return nil
		})
		unprepared := -1
		for i, cmd := range cmds {
			words, _ := cmd.StringSlice()
			if introduced(words) || redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
				unprepared = i
			} else if o := outcomeOf(cmd.Err()); o == queue.Failed || o == queue.Unknown {
				return nil, cmd.Err()
			}
		}
		if unprepared < 0 {
			return cmds, nil
		}
		// This separate request loads the script into the server, and makes this process read the record of the primary.
		if _, err := s.run(ctx, op, some[unprepared]); err != nil {
			return nil, err
		}
	}
}
