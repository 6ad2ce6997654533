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
	lockScript   = load("script.lua") // all operations on locks; executing one twice does no harm
	recordScript = load("record.lua")
	aclScript    = load("acl.lua")
)

// A script is a Lua script. It is sent by its hash, or by its text if the server does not know the hash yet.
type script struct{ text, hash string }

func newScript(text string) script { return script{text, redis.NewScript(text).Hash()} }

func load(name string) script {
	text, _ := files.ReadFile(name) // cannot fail, because the file is embedded
	return newScript(string(text))
}

// The type once is a command that the client does not repeat by itself. The caller repeats it, because it has to know whether the command
// may have been executed twice.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// run sends a script by its hash. If the server does not know the hash, run sends the text.
func (x script) run(ctx context.Context, client redis.UniversalClient, keys []string, args ...any) *redis.Cmd {
	send := func(name, what string) *redis.Cmd {
		words := make([]any, 0, 3+len(keys)+len(args))
		words = append(words, name, what, len(keys))
		for _, key := range keys {
			words = append(words, key)
		}
		cmd := redis.NewCmd(ctx, append(words, args...)...)
		client.Process(ctx, once{cmd}) // returns the error that is also in cmd
		return cmd
	}
	cmd := send("evalsha", x.hash)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return send("eval", x.text)
	}
	return cmd
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

// args returns the arguments with which the script executes an operation.
func (s *store) args(op string, c queue.Ref, more ...any) []any {
	return append([]any{op, micros(s.options.TTL), micros(s.gracePeriod()), c.ID, s.met(), c.Permits}, more...)
}

// run executes an operation of the script, and returns the answer. If the primary is unknown, run first reads its record.
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

// send executes an operation for several contenders in one pipeline. It returns one command for each contender. If a command was refused,
// it contains the error. Any other error ends send.
func (s *store) send(ctx context.Context, op string, some []queue.Ref) ([]*redis.Cmd, error) {
	for {
		var cmds []*redis.Cmd
		s.client.Pipelined(ctx, func(p redis.Pipeliner) error { // Pipelined returns an error that is also in a command
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
		// This separate request loads the script into the server. If the primary is unknown, it also reads the record of that primary.
		if _, err := s.run(ctx, op, some[unprepared]); err != nil {
			return nil, err
		}
	}
}
