package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/second"
)

// guarded runs a script of the user if the contender has the lock, by the word of the server, and
// the write is a new one. Those of one contender go one after the other, so that what is executed
// late, or again, has a number that was there.
const guarded = `
local has = (function()
	local time, me = redis.call('TIME'), ARGV[1]
	local now = time[1] * 1000000 + time[2]
	local token, ends = redis.call('ZSCORE', KEYS[2], me), redis.call('ZSCORE', KEYS[3], me)
	local s = redis.call('HMGET', KEYS[4], 'key', 'top', 'n:' .. me)
	if not token or not ends or not s[1] then return 'lost' end
	if tonumber(token) > tonumber(s[2]) or tonumber(ends) <= now then return 'lost' end
	if redis.call('TYPE', KEYS[1]).ok ~= 'string' or redis.call('GET', KEYS[1]) ~= s[1] then return 'lost' end
	if tonumber(s[3] or 0) >= tonumber(ARGV[2]) then return 'again' end
	redis.call('HSET', KEYS[4], 'n:' .. me, ARGV[2])
	return 'has'
end)()
if has ~= 'has' then return {has} end
local function script(KEYS, ARGV)
%s
end
local keys, args = {}, {}
for i = 5, #KEYS do keys[#keys + 1] = KEYS[i] end
for i = 3, #ARGV do args[#args + 1] = ARGV[i] end
return {has, script(keys, args)}
`

var errAgain = errors.New("the script was executed, and its answer is lost")

// eval runs a script in the server that takes effect only while the contender has the lock. It sends
// nothing if check, which should include [contender.Err], returns an error. The contender is not idle
// from before that is asked. So whoever makes check fail first and then finds it idle may hand the
// lock on: no write of the former user takes effect any more.
func (c *contender) eval(ctx context.Context, check func() error, source string, keys []string, args []any) (any, error) {
	c.pending.Add(1) // count first, look after
	err := check()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.pending.Add(-1)
		return nil, err
	}
	type answer struct {
		result any
		err    error
	}
	answers := make(chan answer, 1)
	if !c.claim.store.spawn(func() {
		result, err := c.guarded(check, source, keys, args)
		unknown := classify(err) == uncertain && !errors.Is(err, second.ErrLost) && !errors.Is(err, second.ErrReleased)
		if !unknown || errors.Is(err, errAgain) {
			c.pending.Add(-1) // else it may take effect for as long as the lock is ours
		}
		if unknown {
			err = fmt.Errorf("%w: %w", second.ErrUnknown, err)
		}
		answers <- answer{result, err}
	}) {
		c.pending.Add(-1)
		return nil, second.ErrClosed
	}
	select {
	case a := <-answers:
		return a.result, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", second.ErrUnknown, context.Cause(ctx))
	}
}

// guarded runs the script once.
func (c *contender) guarded(check func() error, source string, keys []string, args []any) (any, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := check(); err != nil { // there was time since
		return nil, err
	}
	c.writes++
	s := c.claim.store
	source = fmt.Sprintf(guarded, source)
	keys = append(c.claim.keys[:len(c.claim.keys):len(c.claim.keys)], keys...)
	args = append([]any{c.id, strconv.FormatInt(c.writes, 10)}, args...)
	words, err := call(s, s.ctx, func(ctx context.Context) ([]any, error) {
		return eval(ctx, s.client, redis.NewScript(source), source, keys, args...).Slice()
	})
	switch {
	case err != nil:
		return nil, err
	case words[0] == "lost":
		c.missing(true)
		return nil, cmp.Or(check(), c.Err())
	case words[0] == "again":
		return nil, errAgain
	case len(words) == 1:
		return nil, nil
	}
	if err, failed := words[1].(error); failed {
		return nil, err
	}
	return words[1], nil
}
