-- What pglock needs in a database, all in the schema tierlock.
--
-- A process has a session, and for each lock that it has or wants a contender. The contenders of one path are a queue, in
-- the order of their tokens. Those for permits are another one, whose name is the path and what is in that of no
-- lock. Times are the server's, at the moment.

CREATE SCHEMA tierlock;

CREATE FUNCTION tierlock.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 12';

CREATE SEQUENCE tierlock.token;

-- A session is over once it has expired, for whoever looks: it is never renewed then.
CREATE TABLE tierlock.session (
	id text COLLATE "C" PRIMARY KEY,
	expires timestamptz NOT NULL,
	host text NOT NULL,
	pid int NOT NULL,
	label text NOT NULL
) WITH (fillfactor = 50); -- room for renewals

CREATE TABLE tierlock.contender (
	path text COLLATE "C" NOT NULL,
	token bigint NOT NULL,
	id text COLLATE "C" NOT NULL UNIQUE,
	session text COLLATE "C" NOT NULL REFERENCES tierlock.session ON DELETE CASCADE,
	reads boolean NOT NULL, -- so that it shares the lock with others that do
	asked boolean NOT NULL DEFAULT false, -- to give the lock up
	linger_ms bigint NOT NULL,
	since timestamptz NOT NULL DEFAULT clock_timestamp(),
	permits bigint NOT NULL DEFAULT 0, -- that there are, 0 for a lock
	weight bigint NOT NULL DEFAULT 0, -- of which it has or wants so many
	PRIMARY KEY (path, token)
);

CREATE INDEX ON tierlock.contender (session);

-- How many permits there are at a path, where a program or an operator has set that. Elsewhere the contenders there say it.
CREATE TABLE tierlock.semaphore (
	path text COLLATE "C" PRIMARY KEY,
	permits bigint NOT NULL
);

-- No token of the queue at path is lower, nor will any be. What is deleted there stays as long as a transaction is open anywhere in
-- the database, and who looks from here on need not pass it by. Of the queues of a slot one has this, most often the busiest.
CREATE TABLE tierlock.floor (
	slot bigint PRIMARY KEY,
	path text COLLATE "C" NOT NULL,
	token bigint NOT NULL
);

-- A server may have lost its newest data: after a promotion, after a crash without durable writes, or because its volume was set back
-- to a snapshot. It may then grant a lock although another process has it, and nothing here shows that. All of these begin with a start
-- of the server. Advisory locks also end when the server resets its shared memory, after one of its processes has crashed. Therefore the
-- first call that finds another life of the server notes when that was. From then on no lock is granted for the longest lease that any
-- process has had. What happened before the schema was made does not count.
CREATE TABLE tierlock.grace_period (
	locks text PRIMARY KEY, -- in 'tables', or 'advisory'
	life text NOT NULL,
	since timestamptz NOT NULL,
	longest_ms bigint NOT NULL -- the TTL of any process
);

-- The server empties an unlogged table where it resets its shared memory. No statistics are used for this, as they can be reset.
CREATE UNLOGGED TABLE tierlock.memory (
	single boolean PRIMARY KEY DEFAULT true CHECK (single),
	id uuid NOT NULL DEFAULT gen_random_uuid()
);

-- timeline is changed by a promotion. It is null at a standby.
CREATE FUNCTION tierlock.timeline() RETURNS text LANGUAGE sql AS
	'SELECT CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END';

-- life is the timeline and when the server was started, which also tells one server from another. For advisory locks it includes the
-- life of the shared memory. It is null at a standby, which can neither write nor read an unlogged table.
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

-- advance moves the sequence above a known token, and above all that are or may have been in the tables. A sequence can be set back:
-- logical replication does not carry it, its newest numbers may be lost with the newest data, and an operator can restart it. The step is
-- more than what is drawn while this runs, or what was lost.
CREATE FUNCTION tierlock.advance(known bigint DEFAULT 0) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(tierlock.key('')); -- no path is empty; two of these at once could set it back
	PERFORM setval('tierlock.token', 1000000 + greatest(known, nextval('tierlock.token'),
		(SELECT max(token) FROM tierlock.contender), (SELECT max(token) FROM tierlock.floor)));
END $$;

INSERT INTO tierlock.grace_period SELECT kind, tierlock.life(kind), 'epoch', 0 FROM unnest(ARRAY['tables', 'advisory']) kind;

-- quiet_ms notes a TTL, and returns for how long no such lock is granted yet. In a database that was restored without these rows that
-- is until the sessions that are there may be over.
CREATE FUNCTION tierlock.quiet_ms(kind text, ttl_ms bigint DEFAULT 0) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	present text := tierlock.life(kind);
	known tierlock.grace_period;
	another boolean; -- life
BEGIN
	SELECT * INTO known FROM tierlock.grace_period WHERE locks = kind;
	another := known.life IS DISTINCT FROM present OR present IS NULL; -- a standby refuses to note it
	IF another OR known.longest_ms < ttl_ms OR known.since > clock_timestamp() THEN -- it was set back
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

-- What a process was told has to be so after a crash, and after a standby has taken over. The role's own setting may be weaker.
CREATE FUNCTION tierlock.durably() RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
		THEN set_config('synchronous_commit', 'on', true) END
$$;

CREATE FUNCTION tierlock.key(queue text) RETURNS bigint LANGUAGE sql IMMUTABLE AS
	'SELECT hashtextextended(queue, 7308604759847199084)';

CREATE FUNCTION tierlock.slot(queue text) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT tierlock.key(queue) & 1023';

-- line is a queue with who has the lock: the first, and if that reads, all that read before the first that does not. Those that
-- have permits are those that, with all ahead, want no more than there are: that is final, as weights only become less.
CREATE FUNCTION tierlock.line(queue text, lowest bigint)
	RETURNS TABLE (id text, session text, token bigint, permits bigint, asked boolean, has boolean) LANGUAGE sql STABLE AS $$
	SELECT c.id, c.session, c.token, c.permits, c.asked,
		CASE WHEN c.permits > 0 THEN sum(c.weight) OVER w <= c.permits ELSE row_number() OVER w = 1 OR bool_and(c.reads) OVER w END
	FROM tierlock.contender c WHERE c.path = queue AND c.token >= lowest WINDOW w AS (ORDER BY c.token)
$$;

-- around names those of a queue for a lock that tell how a contender at a place stands: the last one ahead that keeps the lock from it,
-- itself, the next one, and the first writer behind. They are found by the index, however long the queue is.
CREATE FUNCTION tierlock.around(queue text, lowest bigint, place bigint, reading boolean) RETURNS bigint[] LANGUAGE sql STABLE AS $$
	SELECT ARRAY(
		(SELECT token FROM tierlock.contender WHERE path = queue AND token >= lowest AND token < place AND NOT (reads AND reading)
			ORDER BY token DESC LIMIT 1)
		UNION ALL (SELECT token FROM tierlock.contender WHERE path = queue AND token >= place ORDER BY token LIMIT 2)
		UNION ALL (SELECT token FROM tierlock.contender WHERE path = queue AND token > place AND NOT reads ORDER BY token LIMIT 1))
$$;

-- ahead is how many of the hundred right ahead of a place in a queue keep the lock from a contender there.
CREATE FUNCTION tierlock.ahead(queue text, lowest bigint, place bigint, reading boolean) RETURNS bigint LANGUAGE sql STABLE AS $$
	SELECT count(*) FILTER (WHERE NOT (reads AND reading)) FROM (SELECT reads FROM tierlock.contender
		WHERE path = queue AND token >= lowest AND token < place ORDER BY token DESC LIMIT 100) c
$$;

-- Whoever changes a queue has it alone until its transaction ends. So tokens become visible in their order, and whoever sees
-- its own with none before it is the first for good. It needs a fresh snapshot for each statement. The result is the token that
-- was noted for the queue, the lowest one that is there, null in an empty queue, and the greatest one that has the lock.
CREATE FUNCTION tierlock.enclose(queue text, OUT noted bigint, OUT lowest bigint, OUT held bigint) LANGUAGE plpgsql AS $$
DECLARE
	several boolean; -- may have it
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

-- tell notifies the contenders that have the lock now and did not have it before: those behind the greatest token that had it. It says
-- whether a contender waits behind them. If there is other news, it notifies the others that have the lock. The first that waits for
-- permits may find that more are free, or that more wait. The contender me has caused this and is not notified. A list of all that
-- had the lock in place of that token would be compared with each contender.
CREATE FUNCTION tierlock.tell(queue text, lowest bigint, held bigint, news boolean, me text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('tierlock ' || session, CASE WHEN has AND token > held AND id <> me THEN 'turn ' || id || ' ' || (next IS NOT NULL)
			ELSE 'look ' || queue END)
		FROM (SELECT *, min(token) FILTER (WHERE NOT has) OVER () AS next FROM tierlock.line(queue, lowest)) l
		WHERE token > held AND id <> me AND (has OR permits > 0 AND token = next) OR news AND has AND permits = 0;
END $$;

-- expire deletes the contenders in an enclosed queue whose sessions are over, and reports whether there were any. It waits for
-- renewals under way.
CREATE FUNCTION tierlock.expire(queue text, lowest bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	dead text[] := ARRAY(SELECT id FROM tierlock.session WHERE expires <= clock_timestamp() AND id = ANY (ARRAY(SELECT session
		FROM tierlock.contender WHERE path = queue AND token >= lowest ORDER BY token)) FOR SHARE); -- by the index of that
BEGIN
	IF dead <> '{}' THEN
		DELETE FROM tierlock.contender WHERE path = queue AND token >= lowest AND session = ANY (dead);
	END IF;
	RETURN dead <> '{}';
END $$;

-- enter puts a contender at the tail of a queue, and deletes an old one with that; a try, only if nobody is in the way. If it is
-- repeated it finds what it did before, and yet writes: so it waits for the standby that the first one may not have waited for.
-- A queue for another number of permits refuses it, and says which one counts.
CREATE FUNCTION tierlock.enter(queue text, me text, mine text, reading boolean, lingers bigint, old text, try boolean,
	wanted bigint DEFAULT 0, of bigint DEFAULT 0,
	OUT alive boolean, OUT number bigint, OUT first boolean, OUT removed boolean, OUT quiet bigint) LANGUAGE plpgsql AS $$
DECLARE
	was record := tierlock.enclose(queue);
	changed boolean;
	newest bigint; -- token there
	others bigint; -- permits that there are for those who are there
	calm boolean; -- they all have the lock
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
		IF number <= greatest(was.noted, was.held, newest) THEN -- the sequence was set back: this would be ahead, or not be seen
			PERFORM tierlock.advance(greatest(was.held, newest));
			number := nextval('tierlock.token');
		END IF;
		INSERT INTO tierlock.contender (path, token, id, session, reads, linger_ms, permits, weight)
			VALUES (queue, number, me, mine, reading, lingers, of, wanted);
		IF hashint8(number) & 127 = 0 THEN -- now and then
			INSERT INTO tierlock.floor VALUES (tierlock.slot(queue), queue, coalesce(was.lowest, number))
				ON CONFLICT (slot) DO UPDATE SET path = excluded.path, token = excluded.token;
		END IF;
	END IF;
	news := number IS NOT NULL AND NOT first AND calm;
	IF changed OR removed OR news OR of > 0 THEN -- or nobody has to know
		PERFORM tierlock.tell(queue, coalesce(was.lowest, number), was.held, news, me);
	END IF;
END $$;

-- leave deletes a contender, and reports whether it was there.
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

-- drop deletes contenders as far as it need not wait for anybody, which a renewal that comes next could not. It returns how many.
CREATE FUNCTION tierlock.drop(unwanted text[]) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT count(*) FILTER (WHERE tierlock.leave(path, id))
		FROM (SELECT path, id FROM tierlock.contender WHERE id = ANY (unwanted) ORDER BY path FOR UPDATE SKIP LOCKED) c
		WHERE pg_try_advisory_xact_lock(tierlock.key(path)));
END $$;

-- change has a contender read from now on, and want no more than so many permits, or have none above that. It reports whether it has
-- what it wants, and nothing if it is not there.
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

-- resize sets how many permits there are, and has those who wait look again.
CREATE FUNCTION tierlock.resize(queue text, of bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tierlock.enclose(queue);
	INSERT INTO tierlock.semaphore VALUES (queue, of) ON CONFLICT (path) DO UPDATE SET permits = of;
	UPDATE tierlock.contender SET permits = of WHERE path = queue;
	PERFORM pg_notify('tierlock ' || session, 'look ' || queue) FROM (SELECT DISTINCT session FROM tierlock.contender WHERE path = queue) s;
END $$;

-- ask asks those that have the lock to give it up.
CREATE FUNCTION tierlock.ask(queue text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	was record := tierlock.enclose(queue);
BEGIN
	UPDATE tierlock.contender SET asked = true WHERE path = queue AND token BETWEEN was.lowest AND was.held;
	PERFORM tierlock.tell(queue, was.lowest, was.held, true, '');
END $$;

-- open begins a session.
CREATE FUNCTION tierlock.open(me text, ttl_ms bigint, host text, pid int, label text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tierlock.durably(), tierlock.quiet_ms('tables', ttl_ms);
	INSERT INTO tierlock.session VALUES (me, clock_timestamp() + ttl_ms * interval '1 ms', host, pid, label);
END $$;

-- beat renews a session unless it is over, and names contenders whose sessions are. It locks the row first: once it has seen that the
-- session is not over, nobody else can find the opposite, and it finds so of no session with a renewal under way. It waits for nobody but
-- those who just have.
CREATE FUNCTION tierlock.beat(me text, ttl_ms bigint, OUT alive boolean, OUT stale text[], OUT quiet bigint) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tierlock.durably();
	quiet := tierlock.quiet_ms('tables', ttl_ms); -- which somebody may have reset
	PERFORM FROM tierlock.session WHERE id = me FOR NO KEY UPDATE;
	UPDATE tierlock.session SET expires = clock_timestamp() + ttl_ms * interval '1 ms' WHERE id = me AND expires > clock_timestamp();
	alive := FOUND;
	stale := ARRAY(SELECT c.id FROM tierlock.session s, LATERAL (SELECT id FROM tierlock.contender
		WHERE session = s.id OFFSET 0) c -- or else it may read the rows of all, and those that are dead
		WHERE s.expires <= clock_timestamp() LIMIT 100 FOR SHARE OF s SKIP LOCKED);
	DELETE FROM tierlock.session WHERE id IN (SELECT s.id FROM tierlock.session s WHERE s.expires <= clock_timestamp() - interval '1 minute'
		AND NOT EXISTS (SELECT FROM tierlock.contender c WHERE c.session = s.id) FOR UPDATE OF s SKIP LOCKED);
END $$;

-- finish ends a session with its contenders, a hundred at a time, as the server has room for some thousand locks only.
-- It reports whether that is all. It encloses queues in one order, as others may do the same.
CREATE FUNCTION tierlock.finish(me text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tierlock.leave(path, id) FROM (SELECT path, id FROM tierlock.contender WHERE session = me ORDER BY path LIMIT 100) c;
	DELETE FROM tierlock.session WHERE id = me AND NOT EXISTS (SELECT FROM tierlock.contender WHERE session = me);
	RETURN NOT EXISTS (SELECT FROM tierlock.session WHERE id = me);
END $$;

-- guard fails unless a contender is there and its session not over. From then until the end of the transaction the contender
-- cannot be deleted, so that nobody else gets the lock.
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

-- guard fails, for advisory locks, unless a session has the lock of a key with a token. From then until the end of the transaction nobody
-- else gets it: whoever is granted it next has to wait for the same key as two numbers, of which the server makes another lock.
CREATE FUNCTION tierlock.guard(key bigint, number bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared((key >> 32)::int, (key << 32 >> 32)::int), pg_stat_clear_snapshot();
	IF NOT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND l.granted
		AND l.objsubid = 1 AND (l.classid::bigint << 32) | l.objid::bigint = key AND a.datname = current_database()
		AND starts_with(a.application_name, 'tierlock ' || number || ' ')) THEN
		RAISE 'the lock is lost' USING ERRCODE = 'TL001';
	END IF;
END $$;
