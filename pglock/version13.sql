-- What version 13 adds to the schema: a value beside each lock, and tokens that grow even if a server is set back to the
-- same data twice.

CREATE OR REPLACE FUNCTION tierlock.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 13';

-- advance moves the sequence above the present time in microseconds, too. Data without the newest tokens may also lack an
-- earlier step of a million. The same step would then lead to the same tokens again.
CREATE OR REPLACE FUNCTION tierlock.advance(known bigint DEFAULT 0) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(tierlock.key('')); -- no path is empty; two calls at once could set the sequence back
	PERFORM setval('tierlock.token', 1000000 + greatest(known, nextval('tierlock.token'), (SELECT max(token) FROM tierlock.contender),
		(SELECT max(token) FROM tierlock.floor), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint));
END $$;

-- The values beside locks. A row without data is a value that its writer has removed. The row stays, because an earlier
-- write of the same writer may be executed later.
CREATE TABLE tierlock.value (
	path text COLLATE "C" PRIMARY KEY,
	token bigint NOT NULL,
	turn bigint NOT NULL, -- the number of the write among those of its holder
	saved timestamptz NOT NULL,
	data bytea
);

-- keep writes a value, unless a later write of the same holder was executed before. Its caller also calls guard in the same
-- transaction.
CREATE FUNCTION tierlock.keep(place text, holder bigint, nth bigint, content bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF content IS NULL AND nth = 1 THEN
		DELETE FROM tierlock.value WHERE path = place AND (token <> holder OR turn <= nth);
	ELSE
		INSERT INTO tierlock.value AS v VALUES (place, holder, nth, clock_timestamp(), content) ON CONFLICT (path)
			DO UPDATE SET token = holder, turn = nth, saved = clock_timestamp(), data = content WHERE v.token <> holder OR v.turn < nth;
	END IF;
END $$;

-- load returns the value beside a lock. It writes a message to the write-ahead log. Therefore a standby refuses it, and a
-- former primary that waits for a lost standby also waits here.
CREATE FUNCTION tierlock.load(place text) RETURNS SETOF tierlock.value LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tierlock.durably(), pg_logical_emit_message(true, 'tierlock', 'load');
	RETURN QUERY SELECT * FROM tierlock.value WHERE path = place AND data IS NOT NULL;
END $$;

-- Each role that may use the locks also gets the rights to use their values.
DO $$
DECLARE
	role text;
BEGIN
	FOR role IN SELECT DISTINCT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END FROM pg_class c, aclexplode(c.relacl) a
		WHERE c.oid = 'tierlock.contender'::regclass AND a.privilege_type = 'UPDATE' AND a.grantee <> c.relowner
	LOOP
		EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON tierlock.value TO ' || role;
	END LOOP;
END $$;
