-- This script returns the rules for ACL SETUSER that the user of this connection lacks.
--
-- ARGV: a channel of this package, and a key that no lock uses. Before Redis 7, a script cannot check permissions, and
-- returns no rules.

local channel, key = ARGV[1], ARGV[2]
local missing = {}
if not redis.acl_check_cmd then return missing end

-- may returns whether the user may execute a command. Its caller passes all arguments that the command needs: without them,
-- the check may crash the server. A command that the server does not have under this name counts as allowed.
local function may(...)
	local known, allowed = pcall(redis.acl_check_cmd, ...)
	return not known or allowed
end

local function need(rule, ...)
	if not may(...) then missing[#missing + 1] = rule end
end

-- about returns whether the server refuses a command because of a channel or a key. A refused command changes nothing.
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
	need('+' .. command, command, key, key, key, key) -- some commands need several arguments
end
return missing
