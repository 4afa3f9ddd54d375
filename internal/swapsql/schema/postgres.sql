-- The tables of fencelock on PostgreSQL 12 or later, format 2. There are no functions and no triggers.
-- Running this again changes nothing, also when several programs do it at once. "fencelock_" is the
-- prefix of all names; another one may be chosen.
--
-- Who runs this owns the tables. Another role that uses the locks needs
--   GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock_swap, fencelock_lease, fencelock_history TO role;
--   GRANT SELECT ON fencelock_meta TO role;
--
-- Times are in microseconds since 1970, by the clock of this server: to_timestamp(expires / 1e6).
-- Keys, IDs and marks are bytes: convert_from(lock_key, 'UTF8').
BEGIN;

-- What others have created while this waited for them must be seen.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

-- CREATE … IF NOT EXISTS fails when two do it at once.
SELECT pg_advisory_xact_lock(7305808869229519730);

-- A database has one set of tables. With two of them, in two schemas, two clients whose
-- search_path differs would hold one lock at the same time.
DO $$
DECLARE
    v_other text;
BEGIN
    IF current_setting('server_version_num')::integer < 120000 THEN
        RAISE EXCEPTION 'this is PostgreSQL %', current_setting('server_version') USING ERRCODE = 'FL012';
    END IF;
    SELECT min(quote_ident(n.nspname)) INTO v_other
        FROM pg_catalog.pg_class AS t JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace
        WHERE t.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> current_schema() AND t.relname IN (
            lower('fencelock_meta'), lower('fencelock_swap'), lower('fencelock_lease'), lower('fencelock_line'));
    IF v_other IS NOT NULL THEN
        RAISE EXCEPTION 'the tables of fencelock are in the schema %, and would be created in %', v_other,
            quote_ident(current_schema()) USING ERRCODE = '42P06';
    END IF;
END $$;

CREATE TABLE IF NOT EXISTS fencelock_meta (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- One row per key that is in use, was in use within about a day, or has a mark. A step reads the
-- row, and writes it if it still has the version that was read.
CREATE TABLE IF NOT EXISTS fencelock_swap (
    lock_key  bytea  PRIMARY KEY,
    version   bigint NOT NULL,
    last      bigint NOT NULL,   -- the largest token drawn
    mark      bytea  NOT NULL,   -- what the last finished holder left
    marked_by bytea  NOT NULL,   -- the claim that wrote it
    holder    bytea  NOT NULL,   -- the claim that found nobody in line; its lease is here
    expires   bigint NOT NULL,   -- the end of that lease
    renewals  bigint NOT NULL,
    line      text   NOT NULL,   -- who is in line, in order of arrival: JSON
    arrivals  text   NOT NULL,   -- who has arrived since, behind those: a JSON object each
    came      bigint NOT NULL,   -- when the last one arrived
    open_until bigint NOT NULL,  -- until then others may arrive and wait
    capacity  bigint NOT NULL,    -- of those
    news      text   NOT NULL -- what the last swaps have done to whom, for those who poll
) WITH (fillfactor = 50);

-- A line of hundreds is compressed at each step, which takes the server a third less time by lz4. PostgreSQL has that
-- from 14 on, if it was built so. Tables that were there before stay as they are.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals))
            AND NOT EXISTS (SELECT FROM fencelock_meta WHERE name = 'format') THEN
        ALTER TABLE fencelock_swap ALTER COLUMN line SET COMPRESSION lz4, ALTER COLUMN arrivals SET COMPRESSION lz4;
    END IF;
END $$;

-- The leases of claims that came behind others, from their first renewal on. A transaction that holds a lock has
-- an advisory lock, and ending is 9007199254740992.
CREATE TABLE IF NOT EXISTS fencelock_lease (
    of_key   bytea  NOT NULL,
    id       bytea  NOT NULL,
    ending   bigint NOT NULL,
    renewals bigint NOT NULL,
    PRIMARY KEY (of_key, id)
) WITH (fillfactor = 50);

-- The history: one row per grant. entry is what is known of it, a JSON object.
CREATE TABLE IF NOT EXISTS fencelock_history (
    lock_key bytea  NOT NULL,
    token    bigint NOT NULL,
    written  bigint NOT NULL,
    entry    text   NOT NULL,
    PRIMARY KEY (lock_key, token)
);

CREATE INDEX IF NOT EXISTS fencelock_history_age ON fencelock_history (written);

INSERT INTO fencelock_meta (name, value) VALUES ('format', '3') ON CONFLICT DO NOTHING;

COMMIT;
