package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// The constant guarded is a Lua script that contains the user's script. It checks by the server's data and clock that the contenders still
// hold their locks, and that the write was not executed before. Only then does it run the user's script.
//
// Guarded writes of one contender are numbered and sent one after another. If a script arrives late or twice, the server has already
// executed its number or a later one.
const guarded = `
local n, number = tonumber(ARGV[1]), tonumber(ARGV[2])
local has = (function()
	local time, again = redis.call('TIME'), false
	local now = time[1] * 1000000 + time[2]
	for i = 1, n do
		local k, me = 4 * i - 4, ARGV[2 + i]
		local token, ends = redis.call('ZSCORE', KEYS[k + 2], me), redis.call('ZSCORE', KEYS[k + 3], me)
		local s = redis.call('HMGET', KEYS[k + 4], 'key', 'top', 'n:' .. me)
		if not token or not ends or not s[1] then return {'lost', i} end
		if tonumber(token) > tonumber(s[2]) or tonumber(ends) <= now then return {'lost', i} end
		if redis.call('TYPE', KEYS[k + 1]).ok ~= 'string' or redis.call('GET', KEYS[k + 1]) ~= s[1] then return {'lost', i} end
		again = again or tonumber(s[3] or 0) >= number
	end
	if again then return {'again'} end
	for i = 1, n do
		redis.call('HSET', KEYS[4 * i], 'n:' .. ARGV[2 + i], ARGV[2])
	end
end)()
if has then return has end
local function script(KEYS, ARGV)
%s
end
return {'has', script({unpack(KEYS, 4 * n + 1)}, {unpack(ARGV, n + 3)})}
`

var errAgain = errors.New("the server has executed the script, but its answer is lost")

// Eval is the guarded write of Redis. It executes a Lua script, which takes effect only while this process holds all locks of guard, a
// [*tier.Hold] or a [*tier.Bundle]. Eval takes one round trip, and blocks for at most a sixth of the lease TTL. The script gets keys and
// args as with EVAL, and returns at most one value. Eval returns this value as int64, string, []any or nil. In a cluster, the locks and
// the keys must share a slot; use a hash tag. Scripts of one hold are executed one after another.
//
// The data is unchanged if the error wraps [tier.ErrLost] or [tier.ErrReleased], or says that ctx had already ended, or that the locks
// belong to different registries or slots. If the script itself fails, its earlier writes stay, as with EVAL. If the error wraps
// [tier.ErrUnknown], the outcome is ambiguous, because no answer arrived in time. The script may still be executed, at most once, and not
// after another process has acquired one of the locks. Until the outcome is known, the locks are not handed off within this process. If the
// outcome is still unknown at the release, the locks go back to Redis.
func Eval(ctx context.Context, guard tier.Guard, script string, keys []string, args ...any) (any, error) {
	locks, err := tier.GuardOf(guard)
	if err != nil {
		return nil, fmt.Errorf("redislock: script: %w", err)
	}
	var result any // read only after Write has returned nil, so there is no data race
	s, all, err := queue.Guarding[*store](locks, "Redis")
	if err == nil {
		err = queue.Write(ctx, all, locks.Check, func() (outcome queue.Outcome, err error) {
			result, outcome, err = s.write(all, locks.Check, script, keys, args)
			return outcome, err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("redislock: script under %s: %w", locks.Path, err)
	}
	return result, nil
}

// write sends the user's script once, guarded by the locks of all these contenders.
func (s *store) write(all []*queue.Contender, check func() error, source string, keys []string, args []any) (any, queue.Outcome, error) {
	inTurn := slices.SortedFunc(slices.Values(all), func(c, d *queue.Contender) int { return cmp.Compare(c.Ref().ID, d.Ref().ID) })
	for _, c := range inTurn { // sorted by ID; otherwise two writes could wait for each other forever
		c.Turn.Lock()
		defer c.Turn.Unlock()
	}
	if err := check(); err != nil { // again, because waiting for the mutexes has taken time
		return nil, queue.Failed, err
	}
	x, own, about := newScript(fmt.Sprintf(guarded, source)), []string(nil), []any{len(all), s.writes.Add(1)}
	for _, c := range all {
		ref := c.Ref()
		own, about = append(own, keysOf(ref.Path)...), append(about, ref.ID)
	}
	words, err := call(s.tier.Context(), s, func(ctx context.Context) ([]any, error) {
		return x.run(ctx, s.client, append(own, keys...), append(about, args...)...).Slice()
	})
	if err != nil {
		a := s.failed(err)
		if a.Away != nil {
			s.tier.Renew() // the renewal finds out whether Redis can be reached
		}
		if redis.HasErrorPrefix(err, "CROSSSLOT") {
			a.Err = fmt.Errorf("the locks and the keys are not in one slot: use the same hash tag in all of them: %w", err)
		}
		return nil, a.Outcome, a.Err
	}
	switch words[0] {
	case "lost":
		loss := all[words[1].(int64)-1].Missing()
		return nil, queue.Failed, cmp.Or(check(), loss)
	case "again":
		return nil, queue.Done, fmt.Errorf("%w: %w", second.ErrUnknown, errAgain)
	}
	words = append(words, nil) // a script that returns nothing counts as one that returns nil
	err, _ = words[1].(error)
	return words[1], queue.Done, err
}
