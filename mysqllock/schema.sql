-- What mysqllock needs in a database, for the command-line client: mysql DATABASE < schema.sql.
--
-- A process has a session, and one contender for each lock that it holds or wants. The contenders of a path are a queue, in
-- the order of their tokens. Permits have a separate queue, whose name is the path and characters that no path contains. Times
-- are microseconds since 1970 by the server's clock. Each connection sets @tierlock_life, which identifies this start of this
-- server. A subquery of SET or IF locks the rows that it reads; SELECT INTO does not.
DELIMITER //

CREATE TABLE tierlock_session (
	id VARBINARY(64) PRIMARY KEY,
	expires BIGINT NOT NULL,
	host VARBINARY(1024) NOT NULL,
	pid INT NOT NULL,
	label VARBINARY(1024) NOT NULL
) ENGINE = InnoDB
//
-- The number of the newest notification of a session. It has a separate row, because a renewal must not wait for
-- notifications.
CREATE TABLE tierlock_news (
	session VARBINARY(64) PRIMARY KEY,
	number BIGINT NOT NULL
) ENGINE = InnoDB
//
CREATE TABLE tierlock_contender (
	path VARBINARY(1056) NOT NULL,
	token BIGINT NOT NULL,
	id VARBINARY(64) NOT NULL UNIQUE,
	session VARBINARY(64) NOT NULL,
	shared BOOLEAN NOT NULL, -- a reader
	asked BOOLEAN NOT NULL DEFAULT FALSE, -- a revoke request came
	told BIGINT NOT NULL DEFAULT 0, -- the number of its newest notification
	linger_ms BIGINT NOT NULL,
	since BIGINT NOT NULL,
	permits BIGINT NOT NULL DEFAULT 0, -- the number that exists; 0 for a lock
	weight BIGINT NOT NULL DEFAULT 0, -- the number that it has or wants
	PRIMARY KEY (path, token),
	KEY (session, told)
) ENGINE = InnoDB
//
-- The number of permits of a path, if a program or an operator has set it. Otherwise the number in the contenders applies.
CREATE TABLE tierlock_semaphore (
	path VARBINARY(1056) PRIMARY KEY,
	permits BIGINT NOT NULL
) ENGINE = InnoDB
//
-- The values beside locks. A row without data is a value that its writer has removed. The row stays, because an earlier write
-- of the same writer may be executed later.
CREATE TABLE tierlock_value (
	path VARBINARY(1056) PRIMARY KEY,
	token BIGINT NOT NULL,
	turn BIGINT NOT NULL, -- the number of the write among those of its holder
	saved BIGINT NOT NULL,
	data BLOB
) ENGINE = InnoDB
//
-- Each path belongs to one of these rows. A transaction that changes a queue locks the row until it ends, and draws tokens
-- from the row. Therefore the tokens of a path become visible in their order, and a path leaves no row behind.
CREATE TABLE tierlock_bucket (
	bucket INT PRIMARY KEY,
	newest BIGINT NOT NULL -- the newest token
) ENGINE = InnoDB
//
INSERT INTO tierlock_bucket WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 63)
	SELECT 64 * a.n + b.n, 0 FROM n a, n b
//
-- A server may have lost its newest data: after a crash without durable writes, after a failover, or because its volume was
-- set back. It could then grant a lock that another process holds. Each such loss begins with a start of the server, or
-- with another server: with a new life. The first renewal in a new life records the time. After that, no lock is granted
-- for the longest lease of any process.
CREATE TABLE tierlock_state (
	single BOOLEAN PRIMARY KEY,
	version INT NOT NULL, -- of the schema
	life VARBINARY(255) NOT NULL, -- '' before the first session
	since BIGINT NOT NULL,
	longest_ms BIGINT NOT NULL -- the longest lease
) ENGINE = InnoDB
//
-- note records a lease (0 for none) and the present life of the server. quiet is the rest of the grace period in
-- milliseconds. After a change of the life, tokens continue a million above the known ones, and at least at the present
-- time: the newest tokens, and earlier steps of a million, may be lost. Each transaction calls note first, so that it draws
-- no token before. If the clock was set back, the grace period counts as begun now.
CREATE PROCEDURE tierlock_note(ttl_ms BIGINT, OUT quiet BIGINT) SQL SECURITY INVOKER
BEGIN
	DECLARE known, begun BIGINT;
	DECLARE present VARBINARY(255);
	DECLARE moment BIGINT DEFAULT UNIX_TIMESTAMP(SYSDATE(6)) * 1000000;
	IF @@global.read_only NOT IN ('OFF', '0') THEN -- a number, or the name of a mode
		SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only';
	END IF;
	SELECT life, longest_ms, since INTO present, known, begun FROM tierlock_state;
	IF present <> @tierlock_life OR known < ttl_ms OR begun > moment THEN
		SELECT life, longest_ms, since INTO present, known, begun FROM tierlock_state FOR UPDATE;
		SET moment = UNIX_TIMESTAMP(SYSDATE(6)) * 1000000, known = GREATEST(known, ttl_ms),
			begun = CASE present WHEN '' THEN 0 WHEN @tierlock_life THEN LEAST(begun, moment) ELSE moment END;
		UPDATE tierlock_state SET life = @tierlock_life, longest_ms = known, since = begun;
		IF present <> '' AND present <> @tierlock_life THEN
			UPDATE tierlock_bucket SET newest = GREATEST(newest + 1000000, moment);
		END IF;
	END IF;
	SET quiet = GREATEST(0, known + (begun - moment) DIV 1000 + 1);
END
//
-- enclose locks a queue until the end of the transaction. It returns the newest token, the lowest token in the queue (NULL if
-- the queue is empty), and the highest token that has the lock.
CREATE PROCEDURE tierlock_enclose(queue VARBINARY(1056), OUT newest BIGINT, OUT lowest BIGINT, OUT held BIGINT) SQL SECURITY INVOKER
BEGIN
	DECLARE several BOOLEAN DEFAULT FALSE; -- several contenders may have the lock
	DECLARE CONTINUE HANDLER FOR NOT FOUND SET lowest = NULL, held = 0;
	SELECT s.newest INTO newest FROM tierlock_bucket s WHERE bucket = CRC32(queue) & 4095 FOR UPDATE;
	SELECT token, token, shared OR permits > 0 INTO lowest, held, several FROM tierlock_contender WHERE path = queue ORDER BY token LIMIT 1;
	IF several THEN
		SELECT COALESCE(MAX(token), 0) INTO held FROM (SELECT token,
			IF(permits > 0, SUM(weight) OVER (ORDER BY token) <= permits, MIN(shared) OVER (ORDER BY token)) AS has
			FROM tierlock_contender WHERE path = queue) l WHERE has;
	END IF;
END
//
-- tell notifies the contenders that have just got the lock: those after the highest token that had it before. If news is
-- true, it also notifies the other contenders that have the lock. tell also notifies the first waiter for permits, because
-- more permits may be free, or more requests may wait. The contender me, which caused the change, is not notified. tell
-- adds the sessions to listeners, the list for wake.
CREATE PROCEDURE tierlock_tell(queue VARBINARY(1056), held BIGINT, news BOOLEAN, me VARBINARY(64), INOUT listeners LONGTEXT)
	SQL SECURITY INVOKER
BEGIN
	DECLARE ended, several BOOLEAN DEFAULT FALSE; -- several contenders may have the lock
	DECLARE place BIGINT;
	DECLARE theirs VARBINARY(64);
	DECLARE told CURSOR FOR SELECT token, session FROM (SELECT *, MIN(IF(has, NULL, token)) OVER () AS next FROM (
			SELECT id, token, session, permits, IF(permits > 0, SUM(weight) OVER (ORDER BY token) <= permits,
				ROW_NUMBER() OVER (ORDER BY token) = 1 OR MIN(shared) OVER (ORDER BY token)) AS has
			FROM tierlock_contender WHERE path = queue) q) l
		WHERE id <> me AND (token > held AND (has OR permits > 0 AND token = next) OR news AND has AND permits = 0)
		ORDER BY session, token;
	DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;
	SELECT token, session, shared OR permits > 0, id = me OR token <= held AND NOT news INTO place, theirs, several, ended
		FROM tierlock_contender WHERE path = queue ORDER BY token LIMIT 1;
	IF several THEN -- the cursor costs more than the rest of most transactions
		SET ended = FALSE;
		OPEN told;
		FETCH told INTO place, theirs;
	END IF;
	WHILE NOT ended DO
		UPDATE tierlock_news SET number = number + 1 WHERE session = theirs;
		UPDATE tierlock_contender SET told = (SELECT number FROM tierlock_news WHERE session = theirs) WHERE path = queue AND token = place;
		SET listeners = CONCAT(listeners, theirs, ','), ended = NOT several;
		IF several THEN
			FETCH told INTO place, theirs;
		END IF;
	END WHILE;
END
//
-- wake ends the sleep of the listening connections of a list of sessions, after the commit. A listening connection holds a
-- GET_LOCK with the name of its session, so that wake cannot hit another connection. If no connection sleeps, wake has no
-- effect: a connection that begins to sleep looks for news in the same statement.
CREATE PROCEDURE tierlock_wake(listeners LONGTEXT) SQL SECURITY INVOKER
BEGIN
	DECLARE theirs VARBINARY(64);
	DECLARE connection BIGINT;
	-- The connection has ended, or belongs to another user; a session that is not woken reads the news by itself.
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
	WHILE listeners <> '' DO
		SET theirs = SUBSTRING_INDEX(listeners, ',', 1), listeners = SUBSTRING(listeners, LENGTH(theirs) + 2),
			connection = IS_USED_LOCK(CONCAT('tierlock ', theirs));
		IF connection IS NOT NULL THEN
			KILL QUERY connection;
		END IF;
	END WHILE;
END
//
-- expire deletes the contenders of an enclosed queue whose sessions have ended, and returns whether there were any. It waits
-- for renewals in flight.
CREATE PROCEDURE tierlock_expire(queue VARBINARY(1056), OUT changed BOOLEAN) SQL SECURITY INVOKER
e: BEGIN
	DECLARE ended BOOLEAN DEFAULT FALSE;
	DECLARE theirs VARBINARY(64);
	DECLARE expiry BIGINT;
	DECLARE dead CURSOR FOR SELECT DISTINCT c.session FROM tierlock_contender c LEFT JOIN tierlock_session s ON s.id = c.session
		WHERE c.path = queue AND COALESCE(s.expires, 0) <= UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 ORDER BY c.session;
	DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;
	SET changed = FALSE;
	SELECT COUNT(*) = 0 INTO ended FROM tierlock_contender c LEFT JOIN tierlock_session s ON s.id = c.session
		WHERE c.path = queue AND COALESCE(s.expires, 0) <= UNIX_TIMESTAMP(SYSDATE(6)) * 1000000;
	IF ended THEN -- without the cursor, which costs more
		LEAVE e;
	END IF;
	OPEN dead;
	l: LOOP
		FETCH dead INTO theirs;
		IF ended THEN
			LEAVE l;
		END IF;
		SET expiry = COALESCE((SELECT MAX(expires) FROM tierlock_session WHERE id = theirs LOCK IN SHARE MODE), 0);
		IF expiry <= UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 THEN
			DELETE FROM tierlock_contender WHERE path = queue AND session = theirs;
			SET changed = TRUE;
		END IF;
	END LOOP;
END
//
-- enter inserts a contender at the tail of a queue, and deletes its old contender in the same transaction. A try inserts it
-- only if it gets the lock at once. A repeated enter returns what the first one did. If the queue has another number of
-- permits, enter inserts nothing and returns that number.
CREATE PROCEDURE tierlock_enter(queue VARBINARY(1056), me VARBINARY(64), mine VARBINARY(64), sharing BOOLEAN, lingers BIGINT,
	old VARBINARY(64), try BOOLEAN, wanted BIGINT, many BIGINT) SQL SECURITY INVOKER
l: BEGIN
	DECLARE newest, lowest, held, quiet, number, others BIGINT;
	DECLARE alive, first, calm, changed, removed, entered, news BOOLEAN DEFAULT FALSE;
	DECLARE listeners LONGTEXT DEFAULT '';
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	CALL tierlock_note(0, quiet);
	CALL tierlock_enclose(queue, newest, lowest, held);
	SET alive = COALESCE((SELECT MAX(expires) FROM tierlock_session WHERE id = mine LOCK IN SHARE MODE), 0)
		> UNIX_TIMESTAMP(SYSDATE(6)) * 1000000;
	IF NOT alive THEN
		ROLLBACK;
		SELECT alive, number, first, removed, quiet, others;
		LEAVE l;
	END IF;
	SET first = wanted <= many; -- in an empty queue
	IF lowest IS NOT NULL THEN
		CALL tierlock_expire(queue, changed);
		IF old <> '' THEN
			DELETE FROM tierlock_contender WHERE id = old;
			SET removed = ROW_COUNT() > 0;
		END IF;
		SET number = (SELECT token FROM tierlock_contender WHERE id = me);
		UPDATE tierlock_contender SET linger_ms = lingers WHERE id = me;
		SELECT MAX(permits), COUNT(*) = 1 OR COALESCE(MIN(shared), TRUE), IF(many > 0, COALESCE(SUM(weight), 0) + wanted <= many,
			COALESCE(MIN(shared AND sharing), TRUE)) INTO others, calm, first FROM tierlock_contender
			WHERE path = queue AND token < COALESCE(number, 9223372036854775807);
	END IF;
	IF many > 0 THEN
		SET others = COALESCE((SELECT permits FROM tierlock_semaphore WHERE path = queue), others, many);
		IF others <> many THEN
			ROLLBACK;
			SELECT alive, number, first, removed, quiet, others;
			LEAVE l;
		END IF;
	END IF;
	IF number IS NULL AND NOT (try AND (quiet > 0 OR NOT first)) THEN
		SET number = newest + 1, entered = TRUE;
		UPDATE tierlock_bucket s SET s.newest = number WHERE bucket = CRC32(queue) & 4095;
		INSERT INTO tierlock_contender (path, token, id, session, shared, linger_ms, since, permits, weight)
			VALUES (queue, number, me, mine, sharing, lingers, UNIX_TIMESTAMP(SYSDATE(6)) * 1000000, many, wanted);
	END IF;
	SET news = number IS NOT NULL AND NOT first AND calm, others = NULL;
	IF changed OR removed OR news OR entered AND many > 0 THEN -- otherwise no contender has to be notified
		CALL tierlock_tell(queue, held, news, me, listeners);
	END IF;
	COMMIT;
	CALL tierlock_wake(listeners);
	SELECT alive, number, first, removed, quiet, others;
END
//
-- remove deletes a contender in a transaction, and returns whether it existed.
CREATE PROCEDURE tierlock_remove(queue VARBINARY(1056), me VARBINARY(64), OUT present BOOLEAN, INOUT listeners LONGTEXT) SQL SECURITY INVOKER
BEGIN
	DECLARE newest, lowest, held, place BIGINT;
	CALL tierlock_enclose(queue, newest, lowest, held);
	SET place = (SELECT token FROM tierlock_contender WHERE id = me), present = place IS NOT NULL;
	IF present THEN
		DELETE FROM tierlock_contender WHERE id = me;
		CALL tierlock_tell(queue, held, place > held, '', listeners);
	END IF;
END
//
CREATE PROCEDURE tierlock_leave(queue VARBINARY(1056), me VARBINARY(64)) SQL SECURITY INVOKER
BEGIN
	DECLARE present BOOLEAN;
	DECLARE quiet BIGINT;
	DECLARE listeners LONGTEXT DEFAULT '';
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	CALL tierlock_note(0, quiet);
	CALL tierlock_remove(queue, me, present, listeners);
	COMMIT;
	CALL tierlock_wake(listeners);
	SELECT present;
END
//
-- drop deletes contenders by a list of ids. It skips rows that are locked, because the renewal that follows must not wait. It
-- returns the number of deleted contenders.
CREATE PROCEDURE tierlock_drop(ids LONGTEXT) SQL SECURITY INVOKER
BEGIN
	DECLARE me VARBINARY(64);
	DECLARE queue VARBINARY(1056);
	DECLARE present BOOLEAN;
	DECLARE dropped, quiet BIGINT DEFAULT 0;
	DECLARE listeners LONGTEXT DEFAULT '';
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	CALL tierlock_note(0, quiet);
	COMMIT;
	WHILE ids <> '' DO
		SET me = SUBSTRING_INDEX(ids, ',', 1), ids = SUBSTRING(ids, LENGTH(me) + 2);
		START TRANSACTION;
		SET queue = NULL;
		SELECT path INTO queue FROM tierlock_contender WHERE id = me;
		IF (SELECT COUNT(*) FROM tierlock_bucket WHERE bucket = CRC32(queue) & 4095 FOR UPDATE SKIP LOCKED) > 0 THEN
			CALL tierlock_remove(queue, me, present, listeners);
			SET dropped = dropped + present;
		END IF;
		COMMIT;
	END WHILE;
	CALL tierlock_wake(listeners);
	SELECT dropped;
END
//
-- change makes a contender a reader, or reduces its demand for permits, or releases all permits above a number. It returns
-- whether the contender has the lock or the permits, and NULL if it does not exist.
CREATE PROCEDURE tierlock_change(queue VARBINARY(1056), me VARBINARY(64), sharing BOOLEAN, wanted BIGINT) SQL SECURITY INVOKER
BEGIN
	DECLARE newest, lowest, held, quiet, place BIGINT;
	DECLARE has BOOLEAN DEFAULT NULL;
	DECLARE listeners LONGTEXT DEFAULT '';
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	CALL tierlock_note(0, quiet);
	CALL tierlock_enclose(queue, newest, lowest, held);
	SET place = (SELECT token FROM tierlock_contender WHERE id = me);
	IF place IS NOT NULL THEN
		UPDATE tierlock_contender SET shared = shared OR sharing, weight = LEAST(weight, wanted) WHERE id = me;
		CALL tierlock_tell(queue, held, FALSE, '', listeners);
		CALL tierlock_enclose(queue, newest, lowest, held);
		SET has = place <= held;
	END IF;
	COMMIT;
	CALL tierlock_wake(listeners);
	SELECT has, quiet;
END
//
-- resize sets the number of permits, and notifies the waiters.
CREATE PROCEDURE tierlock_resize(queue VARBINARY(1056), many BIGINT) SQL SECURITY INVOKER
BEGIN
	DECLARE newest, lowest, held, quiet BIGINT;
	DECLARE listeners LONGTEXT;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	CALL tierlock_note(0, quiet);
	CALL tierlock_enclose(queue, newest, lowest, held);
	INSERT INTO tierlock_semaphore VALUES (queue, many) ON DUPLICATE KEY UPDATE permits = many;
	UPDATE tierlock_contender SET permits = many WHERE path = queue;
	UPDATE tierlock_news SET number = number + 1 WHERE session IN (SELECT session FROM tierlock_contender WHERE path = queue);
	UPDATE tierlock_contender c JOIN tierlock_news n ON n.session = c.session SET c.told = n.number WHERE c.path = queue;
	SET listeners = COALESCE((SELECT CONCAT(GROUP_CONCAT(DISTINCT session), ',') FROM tierlock_contender WHERE path = queue), '');
	COMMIT;
	CALL tierlock_wake(listeners);
END
//
-- ask sends a revoke request to the contenders that have the lock.
CREATE PROCEDURE tierlock_ask(queue VARBINARY(1056)) SQL SECURITY INVOKER
BEGIN
	DECLARE newest, lowest, held, quiet BIGINT;
	DECLARE listeners LONGTEXT DEFAULT '';
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	CALL tierlock_note(0, quiet);
	CALL tierlock_enclose(queue, newest, lowest, held);
	UPDATE tierlock_contender SET asked = TRUE WHERE path = queue AND token <= held;
	CALL tierlock_tell(queue, held, TRUE, '', listeners);
	COMMIT;
	CALL tierlock_wake(listeners);
END
//
-- open inserts a session.
CREATE PROCEDURE tierlock_open(me VARBINARY(64), ttl_ms BIGINT, host VARBINARY(1024), pid INT, label VARBINARY(1024)) SQL SECURITY INVOKER
BEGIN
	DECLARE quiet BIGINT;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	CALL tierlock_note(ttl_ms, quiet);
	INSERT INTO tierlock_session VALUES (me, UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 + ttl_ms * 1000, host, pid, label);
	INSERT INTO tierlock_news VALUES (me, 0);
	COMMIT;
END
//
-- beat renews a session unless it has ended, and returns news about its contenders. It locks the session's row first, so that
-- no other transaction can end the session after beat has read that it has not ended.
CREATE PROCEDURE tierlock_beat(me VARBINARY(64), ttl_ms BIGINT) SQL SECURITY INVOKER
BEGIN
	DECLARE quiet, expiry, moment, ended BIGINT;
	DECLARE alive BOOLEAN;
	DECLARE dead, forgotten VARBINARY(64);
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	CALL tierlock_note(ttl_ms, quiet);
	SET expiry = COALESCE((SELECT MAX(expires) FROM tierlock_session WHERE id = me FOR UPDATE), 0),
		moment = UNIX_TIMESTAMP(SYSDATE(6)) * 1000000, alive = expiry > moment;
	IF alive THEN
		UPDATE tierlock_session SET expires = moment + ttl_ms * 1000 WHERE id = me;
	END IF;
	COMMIT;
	DO GET_LOCK(CONCAT('tierlock ', me, ' bed'), 0); -- the listening connection of the session waits for it
	SELECT COUNT(*) INTO ended FROM tierlock_session WHERE expires <= moment;
	IF ended > 0 THEN
		SELECT id INTO dead FROM tierlock_session s WHERE expires <= moment
			AND EXISTS (SELECT 1 FROM tierlock_contender c WHERE c.session = s.id) LIMIT 1 FOR UPDATE SKIP LOCKED;
		SELECT id INTO forgotten FROM tierlock_session s WHERE expires <= moment - 60000000
			AND NOT EXISTS (SELECT 1 FROM tierlock_contender c WHERE c.session = s.id) LIMIT 1 FOR UPDATE SKIP LOCKED;
		IF forgotten IS NOT NULL THEN -- otherwise the server would look for NULL in each row, and wait for locked rows
			DELETE FROM tierlock_news WHERE session = forgotten;
			DELETE FROM tierlock_session WHERE id = forgotten;
		END IF;
	END IF;
	SELECT alive, quiet, COALESCE((SELECT GROUP_CONCAT(id) FROM (SELECT id FROM tierlock_contender WHERE session = dead LIMIT 100) d), '') AS stale;
END
//
-- finish ends a session with its contenders, a hundred at a time, and returns whether all are deleted. A later enter finds
-- that the session has ended.
CREATE PROCEDURE tierlock_finish(me VARBINARY(64)) SQL SECURITY INVOKER
BEGIN
	DECLARE ended, present BOOLEAN DEFAULT FALSE;
	DECLARE quiet BIGINT;
	DECLARE queue VARBINARY(1056);
	DECLARE one VARBINARY(64);
	DECLARE listeners LONGTEXT DEFAULT '';
	DECLARE mine CURSOR FOR SELECT path, id FROM tierlock_contender WHERE session = me ORDER BY CRC32(path) & 4095 LIMIT 100;
	DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	UPDATE tierlock_session SET expires = 0 WHERE id = me;
	START TRANSACTION;
	CALL tierlock_note(0, quiet);
	OPEN mine;
	l: LOOP
		FETCH mine INTO queue, one;
		IF ended THEN
			LEAVE l;
		END IF;
		CALL tierlock_remove(queue, one, present, listeners);
	END LOOP;
	CLOSE mine;
	IF NOT EXISTS (SELECT 1 FROM tierlock_contender WHERE session = me) THEN
		DELETE FROM tierlock_session WHERE id = me;
		DELETE FROM tierlock_news WHERE session = me;
	END IF;
	COMMIT;
	CALL tierlock_wake(listeners);
	SELECT NOT EXISTS (SELECT 1 FROM tierlock_session WHERE id = me) AS finished;
END
//
-- commit ends the transaction of a program. It commits if all contenders of a list exist, and otherwise rolls back. It locks
-- their rows until the commit, so that no other process can get the lock before, even if the session has ended. It returns how
-- many contenders existed before the first missing one.
CREATE PROCEDURE tierlock_commit(ids LONGTEXT) SQL SECURITY INVOKER
l: BEGIN
	DECLARE me VARBINARY(64);
	DECLARE good INT DEFAULT 0;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	WHILE ids <> '' DO
		SET me = SUBSTRING_INDEX(ids, ',', 1), ids = SUBSTRING(ids, LENGTH(me) + 2);
		IF (SELECT MAX(token) FROM tierlock_contender WHERE id = me LOCK IN SHARE MODE) IS NULL THEN
			ROLLBACK;
			SELECT FALSE AS committed, good;
			LEAVE l;
		END IF;
		SET good = good + 1;
	END WHILE;
	COMMIT;
	SELECT TRUE AS committed, good;
END
//
-- save writes a value if its writer has the lock, unless a later write of the same hold was executed before. It returns
-- whether the writer has the lock. As in commit, the contender cannot be deleted before the commit.
CREATE PROCEDURE tierlock_save(queue VARBINARY(1056), me VARBINARY(64), holder BIGINT, nth BIGINT, content BLOB) SQL SECURITY INVOKER
BEGIN
	DECLARE quiet BIGINT;
	DECLARE has BOOLEAN;
	DECLARE moment BIGINT DEFAULT UNIX_TIMESTAMP(SYSDATE(6)) * 1000000;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	CALL tierlock_note(0, quiet);
	SET has = (SELECT MAX(token) FROM tierlock_contender WHERE id = me AND token = holder LOCK IN SHARE MODE) IS NOT NULL;
	IF has AND content IS NULL AND nth = 1 THEN
		DELETE FROM tierlock_value WHERE path = queue AND (token <> holder OR turn <= nth);
	ELSEIF has THEN -- the assignments are made from left to right
		INSERT INTO tierlock_value VALUES (queue, holder, nth, moment, content) ON DUPLICATE KEY UPDATE
			data = IF(token <> holder OR turn < nth, content, data), saved = IF(token <> holder OR turn < nth, moment, saved),
			turn = IF(token <> holder OR turn < nth, nth, turn), token = holder;
	END IF;
	COMMIT;
	SELECT has;
END
//
-- load returns the value beside a lock. It draws a token, so that it is a write: a replica refuses it, and a former primary
-- that waits for its replicas also waits here.
CREATE PROCEDURE tierlock_load(queue VARBINARY(1056)) SQL SECURITY INVOKER
BEGIN
	DECLARE quiet, holder, moment BIGINT;
	DECLARE content BLOB;
	DECLARE CONTINUE HANDLER FOR NOT FOUND SET holder = NULL;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	CALL tierlock_note(0, quiet);
	UPDATE tierlock_bucket SET newest = newest + 1 WHERE bucket = CRC32(queue) & 4095;
	SELECT token, saved, data INTO holder, moment, content FROM tierlock_value WHERE path = queue AND data IS NOT NULL;
	COMMIT;
	SELECT holder, moment, content;
END
//
-- check fails unless the user has all the rights that locks need. It changes nothing. It returns the server and its life.
CREATE PROCEDURE tierlock_check() SQL SECURITY INVOKER
BEGIN
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	INSERT INTO tierlock_session SELECT * FROM tierlock_session WHERE id = '';
	INSERT INTO tierlock_news SELECT * FROM tierlock_news WHERE session = '';
	INSERT INTO tierlock_contender SELECT * FROM tierlock_contender WHERE path = '';
	INSERT INTO tierlock_semaphore SELECT * FROM tierlock_semaphore WHERE path = '';
	INSERT INTO tierlock_value SELECT * FROM tierlock_value WHERE path = '';
	UPDATE tierlock_session SET expires = 0 WHERE id = '';
	UPDATE tierlock_news SET number = 0 WHERE session = '';
	UPDATE tierlock_contender SET asked = TRUE WHERE path = '';
	UPDATE tierlock_semaphore SET permits = 0 WHERE path = '';
	UPDATE tierlock_value SET turn = 0 WHERE path = '';
	UPDATE tierlock_bucket SET newest = 0 WHERE bucket = -1;
	UPDATE tierlock_state SET since = 0 WHERE single = FALSE;
	DELETE FROM tierlock_session WHERE id = '';
	DELETE FROM tierlock_news WHERE session = '';
	DELETE FROM tierlock_contender WHERE path = '';
	DELETE FROM tierlock_value WHERE path = '';
	COMMIT;
	SELECT @tierlock_life;
END
//
-- The last statement records that all statements before were executed.
INSERT INTO tierlock_state VALUES (TRUE, 1, '', 0, 0)
//
