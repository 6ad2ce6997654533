-- What the user of this connection may not do and has to, in the words that ACL SETUSER allows it with.
--
-- ARGV: a channel of this package, and a key that is no lock's. Before Redis 7 nobody can ask.

local channel, key = ARGV[1], ARGV[2]
local missing = {}
if not redis.acl_check_cmd then return missing end

-- A server may crash that is asked about a command without the arguments that it needs. One that it does not have under
-- this name is not a matter of permissions.
local function may(...)
	local known, allowed = pcall(redis.acl_check_cmd, ...)
	return not known or allowed
end

local function need(rule, ...)
	if not may(...) then missing[#missing + 1] = rule end
end

-- about reports whether a command is refused because of what it is about: nothing is done.
local function about(what, ...)
	if may(...) then return false end
	local refused = redis.pcall(...)
	return type(refused) == 'table' and refused.err and refused.err:find(what)
end

need('+eval', 'eval', '', '0')
need('+evalsha', 'evalsha', '', '0')
need('+info', 'info')
need('+ping', 'ping')
need('+time', 'time')
if about(' channel', 'publish', channel, '') then
	missing[#missing + 1] = '&tierlock:*'
else
	need('+publish', 'publish', channel, '')
	need('+subscribe', 'subscribe', channel)
end
if about(' key', 'type', key) then
	missing[#missing + 1] = '~{tierlock:primary}:*'
	return missing
end
for _, command in ipairs({
	'type', 'get', 'set', 'del', 'pexpire', 'persist', 'pttl', 'hget', 'hmget', 'hset', 'hdel',
	'zadd', 'zcard', 'zrange', 'zrangebyscore', 'zrank', 'zrem', 'zscore',
}) do
	need('+' .. command, command, key, key, key, key) -- some take several
end
return missing
