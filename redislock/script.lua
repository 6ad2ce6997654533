-- This script executes each operation on a lock, or on the permits at its path. It also keeps their state.
--
-- KEYS: the lock; its queue (contenders by token); their leases (by expiry); its state; and its value, for operations that
-- may use the value. ARGV: the operation; the lease TTL and the grace period of the caller in microseconds; the contender;
-- the primaries that the caller knows, each with the rest of its grace period; the number of permits, 0 for a lock; and the
-- arguments of the operation.
--
-- A contender has the lock, or the permits that it wants, if its token is at most top. As long as any contender has the
-- lock, the key of the lock has the value of the field key in the state. All times are microseconds by the server's clock.

local lock, queue, leases, state = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local op, ttl, unsure, me = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local met, quiet = ARGV[5], 1 -- quiet is the rest of the grace period; not 0 until the primary is known
local weight, description, old = tonumber(ARGV[7]), ARGV[8], ARGV[9]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local keep = 2 * 60 * 60 * 1000 -- unused keys expire after this time in ms, or after three quarters of it
local gap = 25000 -- how long the key stays free for foreign locks, which poll
local glance = 2000 -- the interval of polls in a gap; a foreign lock may last only this long
local often, seldom = 100000, 10000000 -- the interval of gaps if a foreign lock was seen, and if not
local memory = 60000000 -- how long a foreign lock counts as seen
local longest = 100000 -- the longest interval of polls while a foreign lock exists
local sight = 100 -- how many contenders ahead a reader looks at

local function int(n) return string.format('%.0f', n) end

-- Another primary than before, or a restarted one, may have lost the newest grants. Therefore the script grants no lock if
-- the caller does not know the primary. It returns the id and the age of the primary instead. The age shows how long the
-- server has been the primary, unless the server was promoted, or was started with the data of a primary.
if op ~= 'list' then
	local info = redis.call('INFO', 'replication')
	local id, former, age, heir = info:match('master_replid:(%w+)'), info:match('master_replid2:(%w+)'), 0, '1'
	if not id or not former then return redis.error_reply('NOREPLID INFO replication shows no master_replid') end
	quiet = tonumber(met:match(id .. '=(%d+)'))
	if not quiet then
		if not former:find('[^0]') then
			heir = '0'
			local uptime = redis.call('INFO', 'server'):match('uptime_in_seconds:(%-?%d+)')
			age = math.max(tonumber(uptime or 0) - 1, 0) * 1000000 -- the uptime may be almost a second too long
		end
		return { 'stranger', id, int(age), heir }
	end
end

-- PERSIST changes nothing here, but counts as a write. Therefore a replica, or a primary that has lost its replicas,
-- refuses it instead of returning an old value.
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
local since = tonumber(known_state[6] or 0) -- when the last contender left the queue
local of = tonumber(known_state[7] or ARGV[6]) -- the number of permits; 0 for a lock
local set = known_state[11] -- resize has set the number of permits, which stays
local kept = tonumber(known_state[8] or 0) -- when the expiry of all keys was last set
-- taken is the sum of the permits of all holders, and takers is the number of these holders. The state has both, because
-- adding up the permits takes one command for each holder.
local taken, takers = tonumber(known_state[9] or 0), tonumber(known_state[10] or 0)
local noted = int(taken) .. ' ' .. int(takers) -- the sum in the state
if of > 0 then gap = 0 end -- no other library uses permits
if left > now then left = now - gap end -- the clock was set back

-- These variables cache what this call has read or written: the number of contenders in the queue, the first two contenders
-- with their tokens, and the first waiter. For each contender, they cache its token, its description, and its permits.
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

-- wants returns how many permits a contender has or wants. If the server has evicted that number, wants returns the number
-- of all permits.
local function wants(id)
	weights[id] = weights[id] or tonumber(redis.call('HGET', state, 'w:' .. id) or of)
	return weights[id]
end

-- has_some returns whether a contender has permits that taken includes.
local function has_some(id)
	local token = of > 0 and token_of(id)
	return token and token <= top
end

-- drop removes a contender from the queue. It returns the number of removed contenders.
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

-- front returns the first waiter, and holders returns the contenders that have the lock or permits. In most cases, the first
-- two contenders of the queue are enough for both.
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

-- nobody_has resets the holders: from then on, no contender has the lock or permits.
local function nobody_has() top, taken, takers = 0, 0, 0 end

-- waiting returns the number of waiters.
local function waiting()
	local next = front()
	return next and size - redis.call('ZRANK', queue, next) or 0
end

-- recount adds up the permits again if the number of holders is not the counted one, for example because an operator has
-- removed a holder.
local function recount()
	if of == 0 or takers == size - waiting() then return end
	taken, takers = 0, 0
	for _, id in ipairs(holders()) do taken, takers = taken + wants(id), takers + 1 end
end

-- note stores the sum in the state if it has changed.
local function note()
	local sum = int(taken) .. ' ' .. int(takers)
	if of == 0 or sum == noted then return end
	redis.call('HSET', state, 'taken', int(taken), 'takers', int(takers))
	noted = sum
end

-- prospect returns what the first waiter for permits has to know: the number of free permits, and the number of waiters.
local function prospect() return of > 0 and (of - taken) .. ' ' .. waiting() end

-- look returns the value at the key of the lock, or nil if there is none. For permits, it ignores a foreign value, because
-- no other library uses that key.
local function look()
	local value = redis.pcall('GET', lock)
	if type(value) == 'table' then
		if not value.err:find('WRONGTYPE') then redis.call('GET', lock) end -- raises the error, for example a missing permission
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
if redis.call('ZCARD', leases) < size then -- leases were evicted, or an operator has deleted them
	for _, id in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
		redis.call('ZADD', leases, 'NX', int(now + unsure), id)
	end
	redis.call('PEXPIRE', leases, keep)
end

local held = look()
if mine and held ~= mine then -- an operator has changed the key; a foreign lock may have followed
	for _, id in ipairs(holders()) do
		drop(id)
		lost[#lost + 1] = id
	end
	redis.call('HDEL', state, 'key', 'top')
	mine = false
	nobody_has()
end
note() -- noted here, because some operations return early

local function give_up(id)
	local removed = drop(id)
	ended = ended or removed == 1
	return removed
end

-- renew renews the lease of the contender. It sets the expiry of the keys from time to time. It also does so if the
-- contender is alone in the queue, because the keys may then be new.
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
		if not head_before and math.abs(now - since) >= gap then -- the key was free for at least a gap
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

-- free deletes the key of the lock.
local function free()
	if mine then
		redis.call('DEL', lock)
		redis.call('HDEL', state, 'key', 'top')
		mine, held = false, nil
		nobody_has()
	end
end

-- extend grants the lock to all contenders that may have it now. It grants permits to the first waiters as long as enough
-- are free.
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

-- put sets the key of the lock to the head of the queue. The key expires with the last lease of all contenders. The last
-- lease of the holders would take long to find, because there may be thousands of readers.
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

-- next_gap returns when the next gap is due, in which the key stays free.
local function next_gap() return left + (now - foreign < memory and often or seldom) end

-- settle grants the lock to the contenders that may have it, and updates the key. If it cannot grant the lock yet, it sets
-- wait to the time after which the head of the queue has to look again.
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

-- keep_from_reading returns how many contenders ahead block a reader at a rank, and the nearest of these. It reads only the
-- nearest contenders ahead. Contenders farther ahead count as writers.
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
	for _, other in ipairs({ front(), first()[1] }) do -- one of the two is a writer, unless no lock is granted
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
		if known[1] ~= int(token) or tonumber(known[2]) < turn then -- otherwise this write is late
			redis.call('DEL', KEYS[5])
			if kept or turn > 1 then -- otherwise no earlier write of this holder can arrive late
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
