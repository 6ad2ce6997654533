package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// guarded runs a script of the user if the contender has the lock, by the word of the server, and the write is a new one. Those
// of one contender go one after the other, so that what is executed late, or again, has a number that was there.
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
return {has, script({unpack(KEYS, 5)}, {unpack(ARGV, 3)})}
`

var errAgain = errors.New("the script was executed, and its answer is lost")

// Eval runs a Lua script in Redis that takes effect only while the lock of hold is ours: an exact fence for data in the same
// Redis. The script is given keys and args as EVAL does it; in a cluster, the keys have to be in the slot of the lock, by a
// hash tag. It must return one value at most, and what it returns is the result: an int64, a string, a []any, or nil.
//
// Nothing was changed when the error wraps [tier.ErrLost] or [tier.ErrReleased], or ctx had ended before, or the lock is not
// one on Redis. An error of the script itself undoes nothing, as with EVAL. When the answer is lost, or does not come within a
// sixth of the lease TTL, or ctx ends first, the error wraps [tier.ErrUnknown]: the script may still run, but once at most, and
// never after the lock went to another process. Until the outcome is known the lock is not handed on within the process either;
// if it never is known, the lock leaves the process with the release.
//
// The scripts of one hold, and of those it is handed to within the process, run one after the other.
func Eval(ctx context.Context, hold *tier.Hold, script string, keys []string, args ...any) (any, error) {
	c, _ := second.GrantOf(hold).(*queue.Contender)
	s, ok := c.Store().(*store)
	if !ok {
		return nil, fmt.Errorf("redislock: script under %s: that lock is not on Redis", hold.Path())
	}
	var result any // whoever does not wait for the end does not look at it
	err := c.Write(ctx, hold.Err, func() (outcome queue.Outcome, err error) {
		result, outcome, err = s.write(c, hold.Err, script, keys, args)
		return outcome, err
	})
	if err != nil {
		return nil, fmt.Errorf("redislock: script under %s: %w", hold.Path(), err)
	}
	return result, nil
}

// write runs a script under a lock once.
func (s *store) write(c *queue.Contender, check func() error, source string, keys []string, args []any) (any, queue.Outcome, error) {
	c.Turn.Lock()
	defer c.Turn.Unlock()
	if err := check(); err != nil { // there was time since
		return nil, queue.Failed, err
	}
	ref, x := c.Ref(), newScript(fmt.Sprintf(guarded, source))
	args = append([]any{ref.ID, s.writes.Add(1)}, args...)
	words, err := call(s.tier.Context(), s, func(ctx context.Context) ([]any, error) {
		return x.run(ctx, s.client, append(keysOf(ref.Path), keys...), args...).Slice()
	})
	if err != nil {
		a := s.failed(err)
		if a.Away != nil {
			s.tier.Renew() // which tells whether Redis is away
		}
		return nil, a.Outcome, a.Err
	}
	switch words[0] {
	case "lost":
		loss := c.Missing()
		return nil, queue.Failed, cmp.Or(check(), loss)
	case "again":
		return nil, queue.Done, fmt.Errorf("%w: %w", second.ErrUnknown, errAgain)
	}
	words = append(words, nil) // as if it had returned that
	err, _ = words[1].(error)
	return words[1], queue.Done, err
}
