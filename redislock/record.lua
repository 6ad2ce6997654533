-- For how long a primary grants nothing yet, in microseconds.
--
-- KEYS: since when it has been the primary, and the longest that any process has ever had to wait for
-- leases to be over. ARGV: that of the caller, and the age of a primary that nobody has met before, in
-- microseconds. This may be another server than the primary, so only durations are passed.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local month = 30 * 24 * 60 * 60 * 1000 -- ms

local function int(n) return string.format('%.0f', n) end

local longest = math.max(tonumber(ARGV[1]), tonumber(redis.call('GET', KEYS[2]) or 0))
local since = math.min(tonumber(redis.call('GET', KEYS[1]) or now - ARGV[2]), now) -- the clock may be set back
redis.call('SET', KEYS[1], int(since), 'PX', int(month))
redis.call('SET', KEYS[2], int(longest))
return int(math.max(since + longest - now, 0))
