-- The state of one lock, or of the permits at its path, and all that is done to it.
--
-- KEYS: the lock, its queue (contenders by token), their leases (by end), its state, and, for what may be about
-- that, its value. ARGV: what to do, the lease and the grace period of the caller in microseconds, the contender; the primaries that the
-- caller has met, each with for how long it grants nothing yet; how many permits there are, 0 for a lock;
-- and what the operation takes.
--
-- A contender with a token up to top has the lock, or the permits that it wants. The key of the lock then
-- has the value that state calls key. All times are the server's, in microseconds.

local lock, queue, leases, state = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local op, ttl, unsure, me = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local met, quiet = ARGV[5], 1 -- for so long nothing is granted; not 0 before the primary is known
local weight, description, old = tonumber(ARGV[7]), ARGV[8], ARGV[9]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local keep = 2 * 60 * 60 * 1000 -- ms after which unused keys end, or three quarters of it
local gap = 25000 -- for so long the key is left to locks of others, who try again and again
local glance = 2000 -- the time between two looks in a gap: a lock of others may be as short
local often, seldom = 100000, 10000000 -- the time between two such gaps, if one of others was seen, and if not
local memory = 60000000 -- for so long it counts as seen
local longest = 100000 -- between two looks at such a lock
local sight = 100 -- so many ahead of a reader are looked at

local function int(n) return string.format('%.0f', n) end

-- A primary that is another one than before, or began anew, may have lost the newest grants. So
-- nobody gets a lock from one that the caller has not met. How long it has been the primary is known
-- by its age, unless it was promoted, or started with the data of one.
if op ~= 'list' then
	local info = redis.call('INFO', 'replication')
	local id, former, age, heir = info:match('master_replid:(%w+)'), info:match('master_replid2:(%w+)'), 0, '1'
	if not id or not former then return redis.error_reply('NOREPLID INFO replication shows no master_replid') end
	quiet = tonumber(met:match(id .. '=(%d+)'))
	if not quiet then
		if not former:find('[^0]') then
			heir = '0'
			local uptime = redis.call('INFO', 'server'):match('uptime_in_seconds:(%-?%d+)')
			age = math.max(tonumber(uptime or 0) - 1, 0) * 1000000 -- or almost a second more
		end
		return { 'stranger', id, int(age), heir }
	end
end

-- A replica refuses the write, which changes nothing, and so does a primary that misses its replicas.
if op == 'load' then
	redis.call('PERSIST', KEYS[5])
	local value = redis.call('HMGET', KEYS[5], 'token', 'saved', 'data')
	return value[3] and value or {}
end

local known_state = redis.call('HMGET', state, 'key', 'top', 'last', 'foreign', 'gap', 'free', 'of', 'kept',
	'taken', 'takers', 'set')
local mine = known_state[1]
local top, last = tonumber(known_state[2] or 0), tonumber(known_state[3] or 0)
local foreign, left = tonumber(known_state[4] or 0), tonumber(known_state[5] or 0)
local since = tonumber(known_state[6] or 0) -- when it was nobody's
local of = tonumber(known_state[7] or ARGV[6]) -- so many permits, or 0
local set = known_state[11] -- the number of permits was set, and stays
local kept = tonumber(known_state[8] or 0) -- when the ends of all keys were last set
-- The sum of the permits of all who have some, and how many those are: to add them up takes a command for each.
local taken, takers = tonumber(known_state[9] or 0), tonumber(known_state[10] or 0)
local noted = int(taken) .. ' ' .. int(takers) -- as it is written down
if of > 0 then gap = 0 end -- nobody else has any
if left > now then left = now - gap end -- the clock was set back

-- What this call has read or written already: how many queue, the first two with their tokens, who waits
-- first, and of each contender its token, what it says of itself, and its permits.
local size, heads, next_one, tokens, said, weights = 0, nil, {}, {}, {}, {}

local function token_of(id)
	tokens[id] = tokens[id] or tonumber(redis.call('ZSCORE', queue, id) or nil)
	return tokens[id]
end

local function about(id)
	said[id] = said[id] or redis.call('HGET', state, 'c:' .. id) or 'x-'
	return said[id]
end
local function reads(id) return about(id):sub(1, 1) == 'r' end

local function say(id, what)
	redis.call('HSET', state, 'c:' .. id, what)
	said[id] = what
end

-- What one has of the permits, or wants: all, if that was evicted.
local function wants(id)
	weights[id] = weights[id] or tonumber(redis.call('HGET', state, 'w:' .. id) or of)
	return weights[id]
end

-- has_some reports whether one has permits, of those that taken counts.
local function has_some(id)
	local token = of > 0 and token_of(id)
	return token and token <= top
end

-- drop returns how many it removed.
local function drop(id)
	if has_some(id) then taken, takers = taken - wants(id), takers - 1 end
	local removed = redis.call('ZREM', queue, id)
	redis.call('ZREM', leases, id)
	redis.call('HDEL', state, 'c:' .. id, 'n:' .. id, 'w:' .. id)
	size, heads, tokens[id], said[id], weights[id] = size - removed, nil, nil, nil, nil
	return removed
end

local function first()
	if not heads then
		heads = redis.call('ZRANGE', queue, 0, 1, 'WITHSCORES')
		for i = 1, #heads, 2 do
			heads[i + 1] = tonumber(heads[i + 1])
			tokens[heads[i]] = heads[i + 1]
		end
	end
	return heads
end

-- Who waits first, and who has the lock or permits: mostly one of the first two.
local function front()
	local h = first()
	if not h[1] or h[2] > top then return h[1] end
	if not h[3] or h[4] > top then return h[3] end
	if next_one.heads ~= h or next_one.top ~= top then
		next_one = { heads = h, top = top, id = redis.call('ZRANGEBYSCORE', queue, '(' .. int(top), '+inf', 'LIMIT', 0, 1)[1] }
	end
	return next_one.id
end
local function holders()
	local h = first()
	if not h[1] or h[2] > top then return {} end
	if not h[3] or h[4] > top then return { h[1] } end
	return redis.call('ZRANGEBYSCORE', queue, '-inf', int(top))
end

-- nobody_has begins anew with who has the lock, or permits.
local function nobody_has() top, taken, takers = 0, 0, 0 end

-- How many wait.
local function waiting()
	local next = front()
	return next and size - redis.call('ZRANK', queue, next) or 0
end

-- recount adds the permits up if others have some than those that were counted: if an operator has removed one, say.
local function recount()
	if of == 0 or takers == size - waiting() then return end
	taken, takers = 0, 0
	for _, id in ipairs(holders()) do taken, takers = taken + wants(id), takers + 1 end
end

-- note writes the sum down if it is another one.
local function note()
	local sum = int(taken) .. ' ' .. int(takers)
	if of == 0 or sum == noted then return end
	redis.call('HSET', state, 'taken', int(taken), 'takers', int(takers))
	noted = sum
end

-- What the first one who waits for permits is to know.
local function prospect() return of > 0 and (of - taken) .. ' ' .. waiting() end

-- What is at the key of the lock, nil if nothing is. That of permits is nobody else's.
local function look()
	local value = redis.pcall('GET', lock)
	if type(value) == 'table' then
		if not value.err:find('WRONGTYPE') then redis.call('GET', lock) end -- such as a missing permission
		value = 'a ' .. redis.call('TYPE', lock).ok
	end
	return (of == 0 or value == mine) and value or nil
end

if op == 'list' then
	local list, held = {}, look()
	if held and held ~= mine then
		list = { held, '0', 'x-', '1', '0', '0' }
	end
	for _, id in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
		if tonumber(redis.call('ZSCORE', leases, id) or 0) > now then
			local token = tonumber(redis.call('ZSCORE', queue, id))
			local has = mine and held == mine and token <= top
			for _, word in ipairs({ id, int(token), about(id), has and '1' or '0', int(has and of > 0 and wants(id) or 0), int(of) }) do
				list[#list + 1] = word
			end
		end
	end
	return list
end

size = redis.call('ZCARD', queue)
recount()
local head_before, front_before, prospect_before = first()[1], front(), prospect()
local lost, granted, ended, wait = {}, {}, false, 0

for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', int(now))) do
	drop(id)
end
if redis.call('ZCARD', leases) < size then -- evicted, or deleted by an operator
	for _, id in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
		redis.call('ZADD', leases, 'NX', int(now + unsure), id)
	end
	redis.call('PEXPIRE', leases, keep)
end

local held = look()
if mine and held ~= mine then -- by an operator, or whoever came after one
	for _, id in ipairs(holders()) do
		drop(id)
		lost[#lost + 1] = id
	end
	redis.call('HDEL', state, 'key', 'top')
	mine = false
	nobody_has()
end
note() -- not every operation comes to the end

local function give_up(id)
	local removed = drop(id)
	ended = ended or removed == 1
	return removed
end

-- renew renews the lease. It sets the ends of the keys from time to time, and of those that may be new:
-- where nobody else queues.
local function renew()
	redis.call('ZADD', leases, int(now + ttl), me)
	local long_ago = math.abs(now - kept) > keep * 1000 / 4
	if long_ago then redis.call('HSET', state, 'kept', int(now)) end
	if long_ago or size == 1 then
		for _, key in ipairs({ queue, leases, not set and state or nil }) do redis.call('PEXPIRE', key, keep) end
	end
end

local function insert()
	local token = math.max(last + 1, now)
	if redis.call('ZADD', queue, 'NX', int(token), me) == 1 then
		if not head_before and math.abs(now - since) >= gap then -- the key was free for long
			left = now - gap
		end
		size, last, heads, tokens[me], said[me] = size + 1, token, nil, token, description
		redis.call('HSET', state, 'last', int(last), 'gap', int(left), 'c:' .. me, description)
		if of > 0 then
			redis.call('HSET', state, 'of', int(of), 'w:' .. me, int(weight))
			weights[me] = weight
		end
	end
	renew()
end

-- free frees the key of the lock.
local function free()
	if mine then
		redis.call('DEL', lock)
		redis.call('HDEL', state, 'key', 'top')
		mine, held = false, nil
		nobody_has()
	end
end

-- extend gives the lock to all who may have it now, and permits to all for whom there are enough.
local function extend()
	local function grant(id, token)
		if token > top then
			top = token
			granted[#granted + 1] = id
			if of > 0 then taken, takers = taken + wants(id), takers + 1 end
		end
	end
	if of == 0 then
		local head = first()
		grant(head[1], head[2])
		if not reads(head[1]) then return end
	end
	while true do
		local next = front()
		if not next or of == 0 and not reads(next) then return end
		if of > 0 and taken + wants(next) > of then return end
		grant(next, token_of(next))
	end
end

-- put has the key of the lock say that the first in the queue has it, up to the end of the
-- last lease of all, which readers by the thousand need not look for.
local function put(head)
	local last_lease = redis.call('ZRANGE', leases, -1, -1, 'WITHSCORES')
	local px = math.max(math.ceil((tonumber(last_lease[2] or 0) - now) / 1000), 0) + 1
	if mine ~= head then
		redis.call('SET', lock, head, 'PX', int(px))
	elseif redis.call('PTTL', lock) < px - 1 then
		redis.call('PEXPIRE', lock, int(px))
	end
	if mine ~= head or #granted > 0 then
		redis.call('HSET', state, 'key', head, 'top', int(top))
	end
	mine, held = head, head
end

-- next_gap is when the key is to be left free again.
local function next_gap() return left + (now - foreign < memory and often or seldom) end

-- settle has the lock with whom it belongs to, or sets wait to when the first in the
-- queue is to look again.
local function settle()
	local head = first()
	if not head[1] then
		if ended then
			redis.call('HSET', state, 'free', int(now))
			if not set then redis.call('PEXPIRE', state, keep) end
		end
		free()
		return
	end
	if held and not mine then
		if now - foreign > 1000000 then
			redis.call('HSET', state, 'foreign', int(now))
		end
		local ttl = redis.call('PTTL', lock)
		wait = ttl < 0 and longest or math.min(ttl * 1000 + 1000, longest)
		return
	end
	if not mine or head[2] > top then
		if (ended or op == 'enter') and next_gap() < now then
			left = now
			redis.call('HSET', state, 'gap', int(now))
		end
		wait = math.max(quiet, math.min(left + gap - now, glance))
		if wait > 0 then
			free()
			return
		end
		wait = 0
		nobody_has()
	end
	extend()
	put(head[1])
end

-- keep_from_reading returns how many ahead keep a reader at a rank from the lock, and the nearest of them. It looks at the nearest
-- ones in sight; those farther away count as if they wrote.
local function keep_from_reading(rank)
	local far, nearest = math.max(rank - sight, 0), nil
	local ahead, near, fields = far, redis.call('ZRANGE', queue, far, rank - 1), {}
	for i, other in ipairs(near) do fields[i] = 'c:' .. other end
	local abouts = redis.call('HMGET', state, unpack(fields))
	for i, other in ipairs(near) do
		said[other] = abouts[i] or nil
		if not reads(other) then ahead, nearest = ahead + 1, other end
	end
	if nearest or far == 0 then return ahead, nearest end
	for _, other in ipairs({ front(), first()[1] }) do -- one of both writes, unless nothing is granted
		if not reads(other) then return ahead, other end
	end
	return 0, nil
end

local function answer(id)
	local token = token_of(id)
	if not token then return { '0', int(now) } end
	local self = about(id)
	local self_reads, has = self:sub(1, 1) == 'r', mine and token <= top
	local ahead, nearest, vacant, others = 0, nil, 0, 0
	local next = front()
	if of > 0 then
		others = waiting()
		if not has then
			others = others - 1
			local rank = redis.call('ZRANK', queue, id)
			ahead = rank - redis.call('ZRANK', queue, next)
			if ahead > 0 then nearest = redis.call('ZRANGE', queue, rank - 1, rank - 1)[1] else vacant = of - taken end
		end
	elseif not has then
		local rank = redis.call('ZRANK', queue, id)
		if not self_reads then
			ahead = rank
			if rank > 0 then
				local before = redis.call('ZRANGE', queue, rank - 1, rank - 1, 'WITHSCORES')
				nearest, tokens[before[1]] = before[1], tonumber(before[2])
			end
		elseif rank > 0 then
			ahead, nearest = keep_from_reading(rank)
		end
	end
	local nearest_token, nearest_about = 0, ''
	if nearest then
		nearest_token, nearest_about = token_of(nearest), about(nearest)
	elseif not has and held and not mine then
		ahead, nearest = 1, held
	end
	local pause = 0
	if has then pause = quiet elseif first()[1] == id then pause = wait end
	local function flag(b) return b and '1' or '0' end
	local yield = of > 0 and 0 or math.max(next_gap() - now, 1)
	return {
		'1', int(token), int(now), flag(has and quiet == 0), flag(self_reads), flag(self:sub(2, 2) == 'a'),
		flag(has and next and not (self_reads and reads(next))), flag(has and next and reads(next)),
		int(pause), int(quiet), int(yield), int(ahead), nearest or '', int(nearest_token), nearest_about,
		int(vacant), int(others), int(of),
	}
end

local told = {}
local function tell(id)
	if id ~= me and not told[id] then
		told[id] = true
		redis.call('PUBLISH', 'tierlock:' .. id:match('^[^.]*'), cjson.encode({ id, unpack(answer(id)) }))
	end
end

if (op == 'enter' or op == 'try') and tonumber(ARGV[6]) ~= of then
	if set or first()[1] then return { 'permits', int(of) } end
	of = tonumber(ARGV[6])
end

local result
if op == 'enter' then
	if old ~= '' and give_up(old) == 0 and not token_of(me) then return { 'gone' } end
	insert()
elseif op == 'try' then
	if not token_of(me) then
		local head, read = first()[1], description:sub(1, 1) == 'r'
		local fits = of > 0 and taken + weight <= of or read and mine and head and reads(head)
		if held and not mine or head and (front() or not fits) or quiet > 0 or left + gap > now then
			return { 'busy', int(quiet) }
		end
		insert()
	end
elseif op == 'beat' then
	if token_of(me) then renew() end
elseif op == 'leave' then
	result = { int(give_up(me)) }
elseif op == 'share' then
	if token_of(me) then say(me, 'r' .. about(me):sub(2)) end
elseif op == 'weigh' then
	if token_of(me) and weight < wants(me) then
		if has_some(me) then taken = taken - wants(me) + weight end
		redis.call('HSET', state, 'w:' .. me, int(weight))
		weights[me] = weight
	end
elseif op == 'save' then
	local token, turn, data, kept = token_of(me), weight, description, old == 'keep'
	if mine and token and token <= top then
		local known = redis.call('HMGET', KEYS[5], 'token', 'turn')
		if known[1] ~= int(token) or tonumber(known[2]) < turn then -- else this is late
			redis.call('DEL', KEYS[5])
			if kept or turn > 1 then -- before the first write of a holder, none of its writes can be late
				redis.call('HSET', KEYS[5], 'token', int(token), 'turn', int(turn), 'saved', int(now))
			end
			if kept then redis.call('HSET', KEYS[5], 'data', data) end
		end
		result = {}
	else
		result = { 'gone' }
	end
elseif op == 'ask' then
	if held and not mine then return { 'foreign' } end
	for _, id in ipairs(mine and holders() or {}) do
		say(id, about(id):sub(1, 1) .. 'a' .. about(id):sub(3))
	end
	result = {}
elseif op == 'resize' then
	of, set = tonumber(ARGV[6]), '1'
	redis.call('HSET', state, 'of', int(of), 'set', set)
	redis.call('PERSIST', state)
	result = {}
elseif op ~= 'look' then
	return { 'unsupported' }
end

settle()
note()

for _, id in ipairs(lost) do tell(id) end
for _, id in ipairs(granted) do tell(id) end
local head, next = first()[1], front()
if of > 0 then
	if op == 'resize' then
		for _, id in ipairs(redis.call('ZRANGEBYSCORE', queue, '(' .. int(top), '+inf')) do tell(id) end
	elseif next and (next ~= front_before or prospect() ~= prospect_before) then
		tell(next)
	end
elseif op == 'ask' or next and next ~= front_before then
	for _, id in ipairs(mine and holders() or {}) do tell(id) end
end
if head and head ~= head_before and not mine then tell(head) end

return result or answer(me)
