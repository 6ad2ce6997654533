-- For how long a primary grants nothing yet, in microseconds; -1 if it is not as new as the caller says.
--
-- KEYS: since when it has been the primary, the longest that any process has ever had to wait for leases to be over, which is
-- there if any ever came, and the mark of who came first. ARGV: how long the caller has to, the age of a primary that nobody
-- has met before, in microseconds, and the mark of a caller who says that nobody has used it, by which it finds what it did
-- if it repeats this. This may be another server than the primary, so only durations are passed.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local month = 30 * 24 * 60 * 60 * 1000 -- ms

local function int(n) return string.format('%.0f', n) end

local met, known, mark = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), ARGV[3]
if mark ~= '' and redis.call('GET', KEYS[3]) ~= mark then
	if met or known then return -1 end
	redis.call('SET', KEYS[3], mark, 'PX', 60 * 60 * 1000)
end
local longest = math.max(tonumber(ARGV[1]), tonumber(known or 0))
local since = math.min(tonumber(met or mark ~= '' and 0 or now - ARGV[2]), now) -- the clock may be set back
redis.call('SET', KEYS[1], int(since), 'PX', int(month))
redis.call('SET', KEYS[2], int(longest))
return int(math.max(since + longest - now, 0))
