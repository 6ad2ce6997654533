-- What pglock needs in a database, all in the schema tierlock.
--
-- A process has a session, and one contender for each lock that it holds or wants. The contenders of a path are a queue, in
-- the order of their tokens. Permits have a separate queue, whose name is the path and characters that no path contains.
-- Times are read from the server's clock when they are needed, not at the start of the transaction.

CREATE SCHEMA tierlock;

CREATE FUNCTION tierlock.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 12';

CREATE SEQUENCE tierlock.token;

-- A session ends when it expires, and is never renewed after that. Therefore all transactions agree that it has ended.
CREATE TABLE tierlock.session (
	id text COLLATE "C" PRIMARY KEY,
	expires timestamptz NOT NULL,
	host text NOT NULL,
	pid int NOT NULL,
	label text NOT NULL
) WITH (fillfactor = 50); -- room for renewed rows

CREATE TABLE tierlock.contender (
	path text COLLATE "C" NOT NULL,
	token bigint NOT NULL,
	id text COLLATE "C" NOT NULL UNIQUE,
	session text COLLATE "C" NOT NULL REFERENCES tierlock.session ON DELETE CASCADE,
	reads boolean NOT NULL, -- a reader
	asked boolean NOT NULL DEFAULT false, -- a revoke request came
	linger_ms bigint NOT NULL,
	since timestamptz NOT NULL DEFAULT clock_timestamp(),
	permits bigint NOT NULL DEFAULT 0, -- the number that exists; 0 for a lock
	weight bigint NOT NULL DEFAULT 0, -- the number that it has or wants
	PRIMARY KEY (path, token)
);

CREATE INDEX ON tierlock.contender (session);

-- The number of permits of a path, if a program or an operator has set it. Otherwise the number in the contenders applies.
CREATE TABLE tierlock.semaphore (
	path text COLLATE "C" PRIMARY KEY,
	permits bigint NOT NULL
);

-- A lower bound for a queue: no contender of the queue at path has a lower token, and none will have one. Deleted rows stay
-- in the table while an older transaction is open anywhere in the database. A reader that starts at the bound skips the
-- deleted rows below it. Each slot stores the bound of one of its queues, in most cases the busiest one.
CREATE TABLE tierlock.floor (
	slot bigint PRIMARY KEY,
	path text COLLATE "C" NOT NULL,
	token bigint NOT NULL
);

-- A server may have lost its newest data: after a promotion, after a crash without durable writes, or because its volume
-- was set back to a snapshot. It could then grant a lock that another process holds, and nothing in the database shows
-- that. Each such loss begins with a promotion or a start of the server. Advisory locks also end when the server resets its
-- shared memory, after one of its processes has crashed. The time from one of these events to the next is a life of the
-- server. The first call in a new life records the time. After that, no lock is granted for the longest lease of any
-- process. Losses before the creation of the schema do not count.
CREATE TABLE tierlock.grace_period (
	locks text PRIMARY KEY, -- 'tables' or 'advisory'
	life text NOT NULL,
	since timestamptz NOT NULL,
	longest_ms bigint NOT NULL -- the longest TTL of any process
);

-- When the server resets its shared memory, it empties unlogged tables. A new id in this table therefore shows a reset.
-- Statistics would also show a reset, but they can be reset themselves.
CREATE UNLOGGED TABLE tierlock.memory (
	single boolean PRIMARY KEY DEFAULT true CHECK (single),
	id uuid NOT NULL DEFAULT gen_random_uuid()
);

-- timeline returns the timeline of the server, which changes with a promotion. On a standby, it returns NULL.
CREATE FUNCTION tierlock.timeline() RETURNS text LANGUAGE sql AS
	'SELECT CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END';

-- life identifies the present life of the server, by its timeline and the time of its start. These also differ between
-- servers. For advisory locks, life includes the life of the shared memory. On a standby, it returns NULL, because a standby
-- can neither write nor read an unlogged table.
CREATE FUNCTION tierlock.life(kind text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	whole text := tierlock.timeline() || ' ' || extract(epoch FROM pg_postmaster_start_time());
	part uuid;
BEGIN
	IF kind = 'tables' OR whole IS NULL THEN
		RETURN whole;
	END IF;
	SELECT id INTO part FROM tierlock.memory;
	IF NOT FOUND THEN
		INSERT INTO tierlock.memory DEFAULT VALUES ON CONFLICT DO NOTHING;
		SELECT id INTO part FROM tierlock.memory;
	END IF;
	RETURN whole || ' ' || part;
END $$;

-- advance moves the sequence above a known token, and above all tokens that the tables have or may have had. A sequence can
-- be set back: logical replication does not copy it, and an operator can restart it. Its newest numbers may also be lost
-- with the newest data. The step is greater than the number of tokens that are drawn during advance, or that were lost.
CREATE FUNCTION tierlock.advance(known bigint DEFAULT 0) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	-- The key of no path, since no path is empty; two calls at once could set the sequence back.
	PERFORM pg_advisory_xact_lock(tierlock.key(''));
	PERFORM setval('tierlock.token', 1000000 + greatest(known, nextval('tierlock.token'),
		(SELECT max(token) FROM tierlock.contender), (SELECT max(token) FROM tierlock.floor)));
END $$;

INSERT INTO tierlock.grace_period SELECT kind, tierlock.life(kind), 'epoch', 0 FROM unnest(ARRAY['tables', 'advisory']) kind;

-- quiet_ms records a TTL, and returns the rest of the grace period in milliseconds. A database may have been restored
-- without the rows of grace_period. The grace period then lasts at least until the restored sessions have expired.
CREATE FUNCTION tierlock.quiet_ms(kind text, ttl_ms bigint DEFAULT 0) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	present text := tierlock.life(kind);
	known tierlock.grace_period;
	another boolean; -- the server has another life, or none
BEGIN
	SELECT * INTO known FROM tierlock.grace_period WHERE locks = kind;
	another := known.life IS DISTINCT FROM present OR present IS NULL; -- NULL on a standby, which then refuses the write
	IF another OR known.longest_ms < ttl_ms OR known.since > clock_timestamp() THEN -- or the clock was set back
		PERFORM tierlock.durably();
		INSERT INTO tierlock.grace_period AS q SELECT kind, present, clock_timestamp(),
				greatest(ttl_ms, ceil(1000 * extract(epoch FROM max(expires) - clock_timestamp()))) FROM tierlock.session
			ON CONFLICT (locks) DO UPDATE SET since = CASE q.life WHEN present THEN least(q.since, clock_timestamp()) ELSE clock_timestamp() END,
				life = present, longest_ms = greatest(q.longest_ms, ttl_ms) RETURNING * INTO known;
		IF another THEN
			PERFORM tierlock.advance();
		END IF;
	END IF;
	RETURN greatest(0, ceil(1000 * extract(epoch FROM known.since + known.longest_ms * interval '1 ms' - clock_timestamp())));
END $$;

-- durably makes the commit of the transaction wait until its writes are safe. An answer to a process must stay true after a
-- crash, and after the promotion of a standby. The role may have a weaker setting.
CREATE FUNCTION tierlock.durably() RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
		THEN set_config('synchronous_commit', 'on', true) END
$$;

CREATE FUNCTION tierlock.key(queue text) RETURNS bigint LANGUAGE sql IMMUTABLE AS
	'SELECT hashtextextended(queue, 7308604759847199084)';

CREATE FUNCTION tierlock.slot(queue text) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT tierlock.key(queue) & 1023';

-- line returns a queue, and which contenders have the lock. The first contender has it. If that is a reader, all readers
-- before the first writer have it, too. A contender has permits if it and all contenders ahead want no more permits than
-- exist. While the number of permits stays the same, it keeps them, because weights only become smaller.
CREATE FUNCTION tierlock.line(queue text, lowest bigint)
	RETURNS TABLE (id text, session text, token bigint, permits bigint, asked boolean, has boolean) LANGUAGE sql STABLE AS $$
	SELECT c.id, c.session, c.token, c.permits, c.asked,
		CASE WHEN c.permits > 0 THEN sum(c.weight) OVER w <= c.permits ELSE row_number() OVER w = 1 OR bool_and(c.reads) OVER w END
	FROM tierlock.contender c WHERE c.path = queue AND c.token >= lowest WINDOW w AS (ORDER BY c.token)
$$;

-- around shows the place of a contender in the queue of a lock. It returns up to four tokens: the last one ahead that blocks
-- the contender, its own, the next one, and the first writer behind. The index finds them, however long the queue is.
CREATE FUNCTION tierlock.around(queue text, lowest bigint, place bigint, reading boolean) RETURNS bigint[] LANGUAGE sql STABLE AS $$
	SELECT ARRAY(
		(SELECT token FROM tierlock.contender WHERE path = queue AND token >= lowest AND token < place AND NOT (reads AND reading)
			ORDER BY token DESC LIMIT 1)
		UNION ALL (SELECT token FROM tierlock.contender WHERE path = queue AND token >= place ORDER BY token LIMIT 2)
		UNION ALL (SELECT token FROM tierlock.contender WHERE path = queue AND token > place AND NOT reads ORDER BY token LIMIT 1))
$$;

-- ahead returns how many of the hundred contenders right ahead of a place block a contender at this place.
CREATE FUNCTION tierlock.ahead(queue text, lowest bigint, place bigint, reading boolean) RETURNS bigint LANGUAGE sql STABLE AS $$
	SELECT count(*) FILTER (WHERE NOT (reads AND reading)) FROM (SELECT reads FROM tierlock.contender
		WHERE path = queue AND token >= lowest AND token < place ORDER BY token DESC LIMIT 100) c
$$;

-- enclose locks a queue until the end of the transaction. Therefore tokens become visible in their order. A contender that
-- sees no lower token than its own is first, and stays first. Each statement needs a new snapshot, so enclose refuses other
-- isolation levels. It returns the stored bound of the queue, the lowest token in the queue, and the highest token that has
-- the lock. The last two are NULL if the queue is empty.
CREATE FUNCTION tierlock.enclose(queue text, OUT noted bigint, OUT lowest bigint, OUT held bigint) LANGUAGE plpgsql AS $$
DECLARE
	several boolean; -- several contenders may have the lock
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE 'pglock needs transactions that are read committed, not %', current_setting('transaction_isolation');
	END IF;
	PERFORM tierlock.durably(), pg_advisory_xact_lock(tierlock.key(queue));
	SELECT f.token, c.token, c.token, c.reads OR c.permits > 0 INTO noted, lowest, held, several
		FROM (SELECT max(token) AS token FROM tierlock.floor WHERE slot = tierlock.slot(queue) AND path = queue) f
		LEFT JOIN LATERAL (SELECT * FROM tierlock.contender WHERE path = queue AND token >= coalesce(f.token, 0)
			ORDER BY token LIMIT 1) c ON true;
	IF several THEN
		SELECT coalesce(max(token), 0) INTO held FROM tierlock.line(queue, lowest) WHERE has;
	END IF;
END $$;

-- tell notifies the contenders that have just got the lock: those after the highest token that had it before. These
-- notifications say whether another contender waits behind. If news is true, tell also notifies the other contenders that
-- have the lock. tell also notifies the first waiter for permits, because more permits may be free, or more requests may
-- wait. The contender me, which caused the change, is not notified. The highest token suffices, because the holders are
-- always the first contenders of the queue.
CREATE FUNCTION tierlock.tell(queue text, lowest bigint, held bigint, news boolean, me text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('tierlock ' || session, CASE WHEN has AND token > held AND id <> me THEN 'turn ' || id || ' ' || (next IS NOT NULL)
			ELSE 'look ' || queue END)
		FROM (SELECT *, min(token) FILTER (WHERE NOT has) OVER () AS next FROM tierlock.line(queue, lowest)) l
		WHERE token > held AND id <> me AND (has OR permits > 0 AND token = next) OR news AND has AND permits = 0;
END $$;

-- expire deletes the contenders of an enclosed queue whose sessions have ended, and returns whether there were any. It waits
-- for renewals in flight.
CREATE FUNCTION tierlock.expire(queue text, lowest bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	dead text[] := ARRAY(SELECT id FROM tierlock.session WHERE expires <= clock_timestamp() AND id = ANY (ARRAY(SELECT session
		FROM tierlock.contender WHERE path = queue AND token >= lowest ORDER BY token)) FOR SHARE); -- ORDER BY forces use of the index
BEGIN
	IF dead <> '{}' THEN
		DELETE FROM tierlock.contender WHERE path = queue AND token >= lowest AND session = ANY (dead);
	END IF;
	RETURN dead <> '{}';
END $$;

-- enter inserts a contender at the tail of a queue, and deletes its old contender in the same transaction. A try inserts it
-- only if it gets the lock at once. A repeated enter returns what the first one did, and also writes. Its commit therefore
-- waits for the standby, which the first commit may not have done. If the queue has another number of permits, enter fails
-- and returns that number in the error.
CREATE FUNCTION tierlock.enter(queue text, me text, mine text, reading boolean, lingers bigint, old text, try boolean,
	wanted bigint DEFAULT 0, of bigint DEFAULT 0,
	OUT alive boolean, OUT number bigint, OUT first boolean, OUT removed boolean, OUT quiet bigint) LANGUAGE plpgsql AS $$
DECLARE
	was record := tierlock.enclose(queue);
	changed boolean;
	newest bigint; -- the highest token ahead of the contender
	others bigint; -- the number of permits according to the contenders ahead
	calm boolean; -- all contenders ahead have the lock
	news boolean;
BEGIN
	quiet := tierlock.quiet_ms('tables');
	alive := EXISTS (SELECT FROM tierlock.session WHERE id = mine AND expires > clock_timestamp());
	IF NOT alive THEN
		RETURN;
	END IF;
	first := wanted <= of; -- in an empty queue
	IF was.lowest IS NOT NULL THEN
		changed := tierlock.expire(queue, was.lowest);
		DELETE FROM tierlock.contender WHERE id = old;
		removed := FOUND;
		UPDATE tierlock.contender SET linger_ms = lingers WHERE id = me RETURNING token INTO number;
		SELECT max(token), max(permits), count(*) = 1 OR bool_and(reads), CASE WHEN of > 0 THEN coalesce(sum(weight), 0) + wanted <= of
			ELSE coalesce(bool_and(reads AND reading), true) END INTO newest, others, calm, first FROM tierlock.contender
			WHERE path = queue AND token >= was.lowest AND token < coalesce(number, 9223372036854775807);
	END IF;
	IF of > 0 THEN
		others := coalesce((SELECT permits FROM tierlock.semaphore WHERE path = queue), others, of);
		IF others <> of THEN
			RAISE 'there are % permits, not %', others, of USING ERRCODE = 'TL002', DETAIL = others;
		END IF;
	END IF;
	IF number IS NULL AND NOT (try AND (quiet > 0 OR NOT first)) THEN
		number := nextval('tierlock.token');
		IF number <= greatest(was.noted, was.held, newest) THEN -- the sequence was set back: the token is too low
			PERFORM tierlock.advance(greatest(was.held, newest));
			number := nextval('tierlock.token');
		END IF;
		INSERT INTO tierlock.contender (path, token, id, session, reads, linger_ms, permits, weight)
			VALUES (queue, number, me, mine, reading, lingers, of, wanted);
		IF hashint8(number) & 127 = 0 THEN -- one time in 128
			INSERT INTO tierlock.floor VALUES (tierlock.slot(queue), queue, coalesce(was.lowest, number))
				ON CONFLICT (slot) DO UPDATE SET path = excluded.path, token = excluded.token;
		END IF;
	END IF;
	news := number IS NOT NULL AND NOT first AND calm;
	IF changed OR removed OR news OR of > 0 THEN -- otherwise no contender has to be notified
		PERFORM tierlock.tell(queue, coalesce(was.lowest, number), was.held, news, me);
	END IF;
END $$;

-- leave deletes a contender, and returns whether it existed.
CREATE FUNCTION tierlock.leave(queue text, me text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	was record := tierlock.enclose(queue);
	place bigint;
BEGIN
	DELETE FROM tierlock.contender WHERE id = me RETURNING token INTO place;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	PERFORM tierlock.tell(queue, was.lowest, was.held, place > was.held, '');
	RETURN true;
END $$;

-- drop deletes contenders by a list of ids. It skips rows and queues that are locked, because the renewal that follows must
-- not wait. It returns the number of deleted contenders.
CREATE FUNCTION tierlock.drop(unwanted text[]) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT count(*) FILTER (WHERE tierlock.leave(path, id))
		FROM (SELECT path, id FROM tierlock.contender WHERE id = ANY (unwanted) ORDER BY path FOR UPDATE SKIP LOCKED) c
		WHERE pg_try_advisory_xact_lock(tierlock.key(path)));
END $$;

-- change makes a contender a reader, or reduces its demand for permits, or releases all permits above a number. It returns
-- whether the contender has the lock or the permits, and NULL if it does not exist.
CREATE FUNCTION tierlock.change(queue text, me text, reading boolean, wanted bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	was record := tierlock.enclose(queue);
BEGIN
	UPDATE tierlock.contender SET reads = reads OR reading, weight = least(weight, wanted) WHERE id = me;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	PERFORM tierlock.tell(queue, was.lowest, was.held, false, '');
	RETURN (SELECT has FROM tierlock.line(queue, was.lowest) WHERE id = me);
END $$;

-- resize sets the number of permits, and notifies the sessions in the queue, so that waiters read the queue again.
CREATE FUNCTION tierlock.resize(queue text, of bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tierlock.enclose(queue);
	INSERT INTO tierlock.semaphore VALUES (queue, of) ON CONFLICT (path) DO UPDATE SET permits = of;
	UPDATE tierlock.contender SET permits = of WHERE path = queue;
	PERFORM pg_notify('tierlock ' || session, 'look ' || queue) FROM (SELECT DISTINCT session FROM tierlock.contender WHERE path = queue) s;
END $$;

-- ask sends a revoke request to the contenders that have the lock.
CREATE FUNCTION tierlock.ask(queue text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	was record := tierlock.enclose(queue);
BEGIN
	UPDATE tierlock.contender SET asked = true WHERE path = queue AND token BETWEEN was.lowest AND was.held;
	PERFORM tierlock.tell(queue, was.lowest, was.held, true, '');
END $$;

-- open inserts a session.
CREATE FUNCTION tierlock.open(me text, ttl_ms bigint, host text, pid int, label text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tierlock.durably(), tierlock.quiet_ms('tables', ttl_ms);
	INSERT INTO tierlock.session VALUES (me, clock_timestamp() + ttl_ms * interval '1 ms', host, pid, label);
END $$;

-- beat renews a session unless it has ended, and returns at most a hundred contenders whose sessions have ended. It locks
-- the session's row first, so that no other transaction can end the session after beat has read that it has not ended. beat
-- skips sessions with a renewal in flight. It waits only for transactions that have just found its own session ended. beat
-- also deletes sessions without contenders that ended more than a minute ago.
CREATE FUNCTION tierlock.beat(me text, ttl_ms bigint, OUT alive boolean, OUT stale text[], OUT quiet bigint) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tierlock.durably();
	quiet := tierlock.quiet_ms('tables', ttl_ms); -- records the TTL again, because an operator may have reset it
	PERFORM FROM tierlock.session WHERE id = me FOR NO KEY UPDATE;
	UPDATE tierlock.session SET expires = clock_timestamp() + ttl_ms * interval '1 ms' WHERE id = me AND expires > clock_timestamp();
	alive := FOUND;
	stale := ARRAY(SELECT c.id FROM tierlock.session s, LATERAL (SELECT id FROM tierlock.contender
		WHERE session = s.id OFFSET 0) c -- without OFFSET, the server may read the rows of all sessions, and dead rows
		WHERE s.expires <= clock_timestamp() LIMIT 100 FOR SHARE OF s SKIP LOCKED);
	DELETE FROM tierlock.session WHERE id IN (SELECT s.id FROM tierlock.session s WHERE s.expires <= clock_timestamp() - interval '1 minute'
		AND NOT EXISTS (SELECT FROM tierlock.contender c WHERE c.session = s.id) FOR UPDATE OF s SKIP LOCKED);
END $$;

-- finish ends a session with its contenders, a hundred at a time, because the server has memory for only a few thousand
-- locks. It returns whether all are deleted. It encloses queues in the order of their paths, so that it cannot deadlock
-- with a transaction that encloses the same queues.
CREATE FUNCTION tierlock.finish(me text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tierlock.leave(path, id) FROM (SELECT path, id FROM tierlock.contender WHERE session = me ORDER BY path LIMIT 100) c;
	DELETE FROM tierlock.session WHERE id = me AND NOT EXISTS (SELECT FROM tierlock.contender WHERE session = me);
	RETURN NOT EXISTS (SELECT FROM tierlock.session WHERE id = me);
END $$;

-- guard fails unless a contender exists and its session has not ended. Until the end of the transaction, the contender
-- cannot be deleted, so that no other contender can get the lock.
CREATE FUNCTION tierlock.guard(me text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	mine text;
BEGIN
	PERFORM tierlock.durably();
	SELECT session INTO mine FROM tierlock.contender WHERE id = me FOR KEY SHARE;
	IF NOT FOUND OR NOT EXISTS (SELECT FROM tierlock.session WHERE id = mine AND expires > clock_timestamp()) THEN
		RAISE 'the lock is lost' USING ERRCODE = 'TL001';
	END IF;
END $$;

-- guard with a key and a token is for advisory locks. It fails unless a session has the lock of the key under the token.
-- Until the end of the transaction, guard holds a second lock in shared mode: the same key, but as two numbers, which the
-- server treats as another lock. The next session that is granted the first lock waits for the second one. Therefore that
-- session draws no token before the transaction ends.
CREATE FUNCTION tierlock.guard(key bigint, number bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared((key >> 32)::int, (key << 32 >> 32)::int), pg_stat_clear_snapshot();
	IF NOT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND l.granted
		AND l.objsubid = 1 AND (l.classid::bigint << 32) | l.objid::bigint = key AND a.datname = current_database()
		AND starts_with(a.application_name, 'tierlock ' || number || ' ')) THEN
		RAISE 'the lock is lost' USING ERRCODE = 'TL001';
	END IF;
END $$;
