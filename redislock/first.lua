-- The word of a process that nobody has used these primaries before.
--
-- KEYS: the longest wait for leases, which is there if any process ever came; who came first; and since when each has been the
-- primary. ARGV: the first one of the caller, and its mark, by which it finds what it did if it repeats this.

if redis.call('GET', KEYS[2]) == ARGV[2] then return 1 end
for i, key in ipairs(KEYS) do
	if i ~= 2 and redis.call('GET', key) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2], 'PX', 60 * 60 * 1000)
for i = 3, #KEYS do
	redis.call('SET', KEYS[i], 0, 'PX', 30 * 24 * 60 * 60 * 1000) -- as in record.lua
end
return 1
