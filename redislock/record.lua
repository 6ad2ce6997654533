-- This script returns the rest of a primary's grace period in microseconds. It returns -1 if a caller declares the primary
-- to be new, but a record of an earlier process exists.
--
-- KEYS: the time since which the server has been the primary; the longest grace period of any process so far, which exists
-- if any process has ever come; and the mark of the process that came first. ARGV: the grace period of the caller; the age
-- of the primary, which applies if there is no record; and the mark of a caller that declares the primary to be new, or ''.
-- A caller that repeats the script finds its own mark. All durations are in microseconds. The script may run on another
-- server than the primary. Therefore callers pass only durations, not times.

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
local since = math.min(tonumber(met or mark ~= '' and 0 or now - ARGV[2]), now) -- the clock may have been set back
redis.call('SET', KEYS[1], int(since), 'PX', int(month))
redis.call('SET', KEYS[2], int(longest))
return int(math.max(since + longest - now, 0))
