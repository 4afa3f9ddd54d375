-- The tables and functions of fencelock on PostgreSQL 12 or later, format 1.
-- Running this again changes nothing, also when several processes do it at once.
-- "fencelock_" is the prefix of all names; another one may be chosen.
--
-- Who runs this owns the tables. Another role that shall use the locks needs
--   GRANT SELECT, INSERT, UPDATE, DELETE
--      ON fencelock_meta, fencelock_line, fencelock_claim, fencelock_tombstone TO role;
-- and to keep a history, the same ON fencelock_history.
--
-- Times are in microseconds since 1970, by the clock of this server: read them with
-- to_timestamp(expires / 1e6). Keys, ids and texts are bytes, so that no encoding and
-- no collation touches them: read texts with convert_from(owner, 'UTF8').
BEGIN;

-- What others have created while this waited for them must be seen.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

DO $$ BEGIN
    IF current_setting('server_version_num')::integer < 120000 THEN
        RAISE EXCEPTION 'this is PostgreSQL %', current_setting('server_version') USING ERRCODE = 'FL012';
    END IF;
END $$;

-- CREATE … IF NOT EXISTS and CREATE OR REPLACE fail when two do it at once.
SELECT pg_advisory_xact_lock(7305808869229519730);

-- A database has one set of tables. With two of them, in two schemas, two clients whose
-- search_path differs would hold one lock at the same time.
DO $$
DECLARE
    v_other text;
BEGIN
    SELECT min(quote_ident(n.nspname)) INTO v_other
        FROM pg_catalog.pg_class AS t JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace
        WHERE t.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> current_schema() AND t.relname IN (
            lower('fencelock_meta'), lower('fencelock_line'), lower('fencelock_claim'), lower('fencelock_tombstone'));
    IF v_other IS NOT NULL THEN
        RAISE EXCEPTION 'the tables of fencelock are in the schema %, and would be created in %', v_other,
            quote_ident(current_schema()) USING ERRCODE = '42P06';
    END IF;
END $$;

CREATE TABLE IF NOT EXISTS fencelock_meta (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- One row per key that is in use, was in use within about a day, or has a mark. The
-- lock on it is what makes a step atomic. A step that changes claims or tombstones of a key,
-- other than by renewing, also writes this row: under REPEATABLE READ and SERIALIZABLE a
-- step that has waited for it still sees the claims as they were before it waited. It
-- must fail then, and be repeated.
--
-- A claim that enters a line which nobody is in stays in the row of the line, so that a free
-- lock costs one row and not two. It is alone there, it is granted and does not linger, its
-- token is last - span + 1, it ends at soonest, and the line's mark is its own. Whoever else
-- comes moves it to the other claims first; see fencelock_open.
CREATE TABLE IF NOT EXISTS fencelock_line (
    key      bytea  PRIMARY KEY,
    last     bigint NOT NULL,              -- the largest token drawn
    soonest  bigint NOT NULL,              -- no claim in line ends before; 9223372036854775807 only if there is none
    mark     bytea  NOT NULL DEFAULT '',   -- the largest that a finished holder left
    mark_id  bytea  NOT NULL DEFAULT '',   -- the last claim that left one
    tombstones bigint NOT NULL DEFAULT 0,  -- no tombstone of this key ends after
    since    bigint NOT NULL DEFAULT 0,
    id       bytea  NOT NULL DEFAULT '',   -- '' if there is no such claim
    span     bigint NOT NULL DEFAULT 0,
    capacity bigint NOT NULL DEFAULT 0,
    weight   bigint NOT NULL DEFAULT 0,
    node     bigint NOT NULL DEFAULT 0,
    owner    bytea  NOT NULL DEFAULT '',
    note     bytea  NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

-- One row per claim that is not in the row of its line. The order of tokens is the order of
-- arrival. There are no checks: the server reads the text of each again for every statement
-- that writes, and who reads a row judges it.
CREATE TABLE IF NOT EXISTS fencelock_claim (
    key       bytea   NOT NULL,
    token     bigint  NOT NULL,           -- above 0
    span      bigint  NOT NULL,           -- 1 to 65535
    id        bytea   NOT NULL,
    capacity  bigint  NOT NULL,           -- 1 to 1048576
    weight    bigint  NOT NULL,           -- 1 to capacity
    granted   integer NOT NULL,           -- 0 waits; 1 granted; 2 granted, and its process is still to be told
    lingering boolean NOT NULL,           -- its holder left, the place stays taken
    expires   bigint  NOT NULL,           -- 0: it is bound to a transaction, and ends with it
    since     bigint  NOT NULL,           -- granted since, or waiting since
    node      bigint  NOT NULL,           -- the backend value that waits for it
    mark      bytea   NOT NULL,           -- the line's mark when it was granted
    owner     bytea   NOT NULL,
    note      bytea   NOT NULL,
    PRIMARY KEY (key, token),
    UNIQUE (key, id)
) WITH (fillfactor = 70);

-- What is asked about those who wait. A lock that is granted at once is not in it.
CREATE INDEX IF NOT EXISTS fencelock_claim_news ON fencelock_claim (node) WHERE granted = 2;

-- Tombstones: claim IDs that may not enter before expires.
CREATE TABLE IF NOT EXISTS fencelock_tombstone (
    key     bytea   NOT NULL,
    id      bytea   NOT NULL,
    expires bigint  NOT NULL,
    broken  boolean NOT NULL,             -- an operator ended it
    reason  bytea   NOT NULL,
    node    bigint  NOT NULL,             -- the backend value that held it
    PRIMARY KEY (key, id)
);

CREATE INDEX IF NOT EXISTS fencelock_tombstone_end ON fencelock_tombstone (expires);
CREATE INDEX IF NOT EXISTS fencelock_tombstone_news ON fencelock_tombstone (node) WHERE broken;

-- The history: one row per grant. entry is what is known of it: owner, note, kind, permits,
-- asked, granted, ended, end, reason, broken, broken_by, broken_for, lost. For people:
--   SELECT token, entry FROM fencelock_history WHERE key = 'orders/42' ORDER BY token DESC;
CREATE TABLE IF NOT EXISTS fencelock_history (
    key     bytea  NOT NULL,
    token   bigint NOT NULL,
    written bigint NOT NULL,
    entry   jsonb  NOT NULL,
    PRIMARY KEY (key, token)
);

CREATE INDEX IF NOT EXISTS fencelock_history_age ON fencelock_history (written);

-- What the steps answer: rows of this kind. It is for its type only; "what" says which
-- columns count:
--
--   ticket   the claim itself: token to capacity, granted, remains, ahead, mark, owner, note; without a span
--            the claim is granted as it was asked for, with this token and mark
--   head     the first claim of a line in which it is not granted: token, remains, since, owner, note
--   busy     it was refused: ahead
--   kind     the line has another capacity: capacity
--   reused   a claim with another capacity or weight has the id
--   gone     it is not in line: granted if it was broken, note is the reason
--   left     it has left
--   holds    it is granted, and was to leave only if it waits
--   grant    a waiting claim of the node that asked was granted: key, id, remains, mark
--   touched  claims were removed whose owners may be waiting: key
--   broken   a claim of the node that asked was broken: key, id, note
--   lost     a lease of a renewal is gone: token is its place in the list, granted and note as of gone
--   renewed  all leases of a renewal were gone through; the claim is bound to its transaction
--   unbound  no transaction that this server knows holds what the claim is to be bound to
CREATE OR REPLACE VIEW fencelock_answer AS
    SELECT NULL::text AS what, NULL::bytea AS key, NULL::bytea AS id, NULL::bigint AS token, NULL::bigint AS span,
        NULL::bigint AS weight, NULL::bigint AS capacity, NULL::boolean AS granted, NULL::bigint AS remains,
        NULL::bigint AS ahead, NULL::bigint AS since, NULL::bytea AS mark,
        NULL::bytea AS owner, NULL::bytea AS note;

-- The steps go by the indexes whatever the statistics of a table that changes all the time
-- may say, and by plain scans, which mark dead entries for those who come after them. They
-- are planned once for each session.

-- fencelock_now is the clock that everything is judged by. A double tells
-- microseconds apart until 2106, and is quicker than the numeric that extract returns.
CREATE OR REPLACE FUNCTION fencelock_now() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint $$;

-- fencelock_lazily lets the transaction commit without waiting for the disk. It is for steps
-- that grant nothing and promise nothing: if the server crashes within the next moments
-- (three times wal_writer_delay at most), it may come back as if they had not been. Whatever
-- is committed after them and is waited for takes them to the disk as well.
CREATE OR REPLACE FUNCTION fencelock_lazily() RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT set_config('synchronous_commit', 'off', true) $$;

-- A claim is bound to a transaction by an advisory lock that the transaction holds: its number
-- is made of the claim's ID, so nobody else wants it. A bound claim has no lease. It is in line
-- for as long as that lock is held, and the server releases the lock when the transaction ends
-- or its connection is closed, after its changes are seen by others.
CREATE OR REPLACE FUNCTION fencelock_binding(a_id bytea) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT hashtextextended(encode(a_id, 'hex'), 0) $$;

-- fencelock_is_bound says whether the transaction of a claim is open. Those who ask at the
-- same time share the lock, so nobody takes another one for the transaction.
CREATE OR REPLACE FUNCTION fencelock_is_bound(a_id bytea) RETURNS boolean LANGUAGE sql VOLATILE AS
$$ SELECT NOT pg_try_advisory_xact_lock_shared(fencelock_binding(a_id)) $$;

-- fencelock_open locks the row of a line, which it makes if need be, and moves the claim that
-- is in it to the others. What the statements after it read, the clock too, nobody else
-- changes meanwhile but by renewing.
CREATE OR REPLACE FUNCTION fencelock_open(a_key bytea) RETURNS fencelock_line LANGUAGE plpgsql AS $$
DECLARE
    v_line fencelock_line;
BEGIN
    LOOP
        SELECT * INTO v_line FROM fencelock_line WHERE key = a_key FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO fencelock_line (key, last, soonest, tombstones)
            SELECT a_key, coalesce(max(token + span - 1), 0), 0,
                    coalesce((SELECT max(expires) FROM fencelock_tombstone WHERE key = a_key), 0)
                FROM fencelock_claim WHERE key = a_key
            ON CONFLICT (key) DO NOTHING RETURNING * INTO v_line;
        EXIT WHEN FOUND;
    END LOOP;
    IF v_line.id <> '' THEN
        INSERT INTO fencelock_claim
            (key, token, span, id, capacity, weight, granted, lingering, expires, since, node, mark, owner, note)
            VALUES (a_key, v_line.last - v_line.span + 1, v_line.span, v_line.id, v_line.capacity, v_line.weight, 1, false,
                v_line.soonest, v_line.since, v_line.node, v_line.mark, v_line.owner, v_line.note);
        UPDATE fencelock_line SET id = '' WHERE key = a_key;
        v_line.id := '';
    END IF;
    RETURN v_line;
END $$;

-- fencelock_claims reads the claims in a line, also the one in its row.
CREATE OR REPLACE FUNCTION fencelock_claims(a_key bytea) RETURNS SETOF fencelock_claim LANGUAGE sql STABLE AS $$
    SELECT * FROM fencelock_claim WHERE key = a_key
    UNION ALL
    SELECT key, last - span + 1, span, id, capacity, weight, 1, false, soonest, since, node, mark, owner, note
        FROM fencelock_line WHERE key = a_key AND id <> ''
$$;

-- fencelock_settle grants who fits in a line that is locked; a_mark is its mark.
--
-- It stops at the first claim that does not fit: all claims of a line have one capacity.
CREATE OR REPLACE FUNCTION fencelock_settle(a_key bytea, a_mark bytea, a_now bigint, a_node bigint)
RETURNS SETOF fencelock_answer LANGUAGE plpgsql AS $$
DECLARE
    v_answer fencelock_answer;
    v_claim  fencelock_claim;
    v_before bigint := 0;
BEGIN
    FOR v_claim IN SELECT * FROM fencelock_claim WHERE key = a_key ORDER BY token LOOP
        v_before := v_before + v_claim.weight;
        CONTINUE WHEN v_claim.granted > 0;
        EXIT WHEN v_before > v_claim.capacity;
        UPDATE fencelock_claim
            SET granted = CASE WHEN node = a_node THEN 1 ELSE 2 END, since = a_now, mark = a_mark
            WHERE key = a_key AND token = v_claim.token
            RETURNING * INTO v_claim; -- it may have been renewed since
        IF v_claim.node = a_node THEN
            v_answer.what := 'grant';
            v_answer.key := a_key;
            v_answer.id := v_claim.id;
            v_answer.remains := v_claim.expires - a_now;
            v_answer.mark := a_mark;
            RETURN NEXT v_answer;
        ELSE
            PERFORM pg_notify(lower('fencelock_') || v_claim.node, '');
        END IF;
    END LOOP;
END $$;

-- fencelock_expire removes what has expired from a line that is locked, and grants who
-- fits then. Only a step that removes a claim grants its place to others: a renewal that
-- was in time may commit later, and keeps its row from being removed here. Rows are
-- locked in the order in which fencelock_renew locks them. A bound claim has no lease, so
-- every step on its line comes here, and finds that its transaction has ended.
CREATE OR REPLACE FUNCTION fencelock_expire(a_key bytea, a_mark bytea, a_now bigint, a_node bigint)
RETURNS SETOF fencelock_answer LANGUAGE plpgsql AS $$
DECLARE
    v_answer  fencelock_answer;
    v_removed boolean := false;
    v_soonest bigint;
BEGIN
    PERFORM 1 FROM fencelock_claim WHERE key = a_key AND expires <= a_now ORDER BY token FOR UPDATE;
    IF FOUND THEN
        DELETE FROM fencelock_claim
            WHERE key = a_key AND expires <= a_now AND CASE expires WHEN 0 THEN NOT fencelock_is_bound(id) ELSE true END;
        v_removed := FOUND;
    END IF;
    IF v_removed THEN
        v_answer.what := 'touched';
        v_answer.key := a_key;
        RETURN NEXT v_answer;
    END IF;
    SELECT coalesce(min(expires), 9223372036854775807) INTO v_soonest FROM fencelock_claim WHERE key = a_key;
    UPDATE fencelock_line SET soonest = v_soonest WHERE key = a_key AND (v_removed OR soonest <> v_soonest);
    RETURN QUERY SELECT * FROM fencelock_settle(a_key, a_mark, a_now, a_node);
END $$;

-- fencelock_entomb writes a tombstone in a line that is locked. An earlier one is only
-- prolonged, and what an operator wrote stays the reason.
CREATE OR REPLACE FUNCTION fencelock_entomb(a_key bytea, a_id bytea, a_expires bigint, a_broken boolean, a_reason bytea, a_node bigint)
RETURNS void LANGUAGE sql VOLATILE AS $$
    INSERT INTO fencelock_tombstone AS old (key, id, expires, broken, reason, node)
        VALUES (a_key, a_id, a_expires, a_broken, a_reason, a_node)
        ON CONFLICT (key, id) DO UPDATE SET
            expires = greatest(old.expires, excluded.expires),
            reason = CASE WHEN old.broken AND NOT excluded.broken THEN old.reason ELSE excluded.reason END,
            broken = old.broken OR excluded.broken;
    UPDATE fencelock_line SET tombstones = greatest(tombstones, a_expires) WHERE key = a_key
$$;

-- fencelock_enter_long is fencelock_enter where somebody is in line, and for the first of a
-- line. It is a function of its own because each variable that holds a row costs
-- a call time, whether it is used or not.
CREATE OR REPLACE FUNCTION fencelock_enter_long(a_key bytea, a_id bytea, a_capacity bigint, a_weight bigint, a_ttl bigint,
    a_nowait boolean, a_span bigint, a_node bigint, a_owner bytea, a_note bytea)
RETURNS SETOF fencelock_answer LANGUAGE plpgsql AS $$
DECLARE
    v_line    fencelock_line;
    v_now     bigint;
    v_answer  fencelock_answer;
    v_head    fencelock_claim;
    v_mine    fencelock_claim;
    v_tombstone    fencelock_tombstone;
    v_purged  boolean := false;
    v_lazy    text;
    v_weight  numeric;
    v_ahead   bigint := 0;
    v_granted boolean := true;
BEGIN
    v_line := fencelock_open(a_key);
    v_now := fencelock_now();
    SELECT * INTO v_head FROM fencelock_claim WHERE key = a_key ORDER BY token LIMIT 1;
    IF FOUND AND v_line.soonest <= v_now THEN
        v_purged := true;
        RETURN QUERY SELECT * FROM fencelock_expire(a_key, v_line.mark, v_now, a_node);
        SELECT * INTO v_line FROM fencelock_line WHERE key = a_key;
        SELECT * INTO v_head FROM fencelock_claim WHERE key = a_key ORDER BY token LIMIT 1;
    END IF;

    -- It may be there already. If it lingers, a late repeat of its Enter must not bring
    -- it back, nor stand in line a second time.
    IF v_head.token IS NOT NULL THEN
        SELECT * INTO v_mine FROM fencelock_claim WHERE key = a_key AND id = a_id;
        IF FOUND AND NOT v_mine.lingering AND (v_mine.capacity <> a_capacity OR v_mine.weight <> a_weight) THEN
            v_answer.what := 'reused';
            RETURN NEXT v_answer;
            RETURN;
        END IF;
        IF FOUND AND NOT v_mine.lingering THEN
            UPDATE fencelock_claim
                SET expires = greatest(expires, v_now + a_ttl), node = a_node, granted = least(granted, 1)
                WHERE key = a_key AND token = v_mine.token
                RETURNING * INTO v_mine;
            IF v_mine.granted = 0 THEN
                SELECT count(*) INTO v_ahead FROM
                    (SELECT FROM fencelock_claim WHERE key = a_key AND token < v_mine.token LIMIT 1024) AS few;
                v_answer.what := 'head';
                v_answer.token := v_head.token;
                v_answer.remains := CASE v_head.expires WHEN 0 THEN 100000 ELSE v_head.expires - v_now END;
                v_answer.since := v_head.since;
                v_answer.owner := v_head.owner;
                v_answer.note := v_head.note;
                RETURN NEXT v_answer;
            END IF;
            v_answer.what := 'ticket';
            v_answer.token := v_mine.token;
            v_answer.span := v_mine.span;
            v_answer.weight := v_mine.weight;
            v_answer.capacity := v_mine.capacity;
            v_answer.granted := v_mine.granted > 0;
            v_answer.remains := v_mine.expires - v_now;
            v_answer.ahead := v_ahead;
            v_answer.mark := v_mine.mark;
            v_answer.owner := v_mine.owner;
            v_answer.note := v_mine.note;
            RETURN NEXT v_answer;
            RETURN;
        END IF;
    END IF;
    SELECT * INTO v_tombstone FROM fencelock_tombstone WHERE key = a_key AND id = a_id AND expires > v_now;
    IF FOUND OR v_mine.lingering THEN
        v_answer.what := 'gone';
        v_answer.granted := coalesce(v_tombstone.broken, false);
        v_answer.note := coalesce(v_tombstone.reason, 'it has left');
        RETURN NEXT v_answer;
        RETURN;
    END IF;

    IF v_head.token IS NOT NULL THEN
        IF v_head.capacity <> a_capacity THEN
            v_answer.what := 'kind';
            v_answer.capacity := v_head.capacity;
            RETURN NEXT v_answer;
            RETURN;
        END IF;
        -- If somebody waits, the last one waits and nobody fits behind: the rest of the line need
        -- not be gone through.
        v_granted := (SELECT granted > 0 FROM fencelock_claim WHERE key = a_key ORDER BY token DESC LIMIT 1);
        IF v_granted THEN
            SELECT sum(weight) INTO v_weight FROM fencelock_claim WHERE key = a_key;
            v_granted := v_weight + a_weight <= a_capacity;
        END IF;
    END IF;
    IF NOT v_granted THEN
        SELECT count(*) INTO v_ahead FROM
            (SELECT FROM fencelock_claim WHERE key = a_key LIMIT 1024) AS few;
        v_answer.what := 'head';
        v_answer.token := v_head.token;
        v_answer.remains := CASE v_head.expires WHEN 0 THEN 100000 ELSE v_head.expires - v_now END;
        v_answer.since := v_head.since;
        v_answer.owner := v_head.owner;
        v_answer.note := v_head.note;
        RETURN NEXT v_answer;
        IF a_nowait THEN
            IF NOT v_purged THEN -- which may have granted others something
                v_lazy := fencelock_lazily();
            END IF;
            v_answer.what := 'busy';
            v_answer.ahead := v_ahead;
            RETURN NEXT v_answer;
            RETURN;
        END IF;
    END IF;

    -- The token is drawn from the row as it is now that it is locked.
    IF v_line.last > 9223372036854775807 - 2 * 65535 THEN
        RAISE EXCEPTION 'the counter of the line is at %', v_line.last USING ERRCODE = '22003';
    END IF;
    v_answer.what := 'ticket';
    v_answer.token := greatest(v_line.last + 1, v_now, 1);
    v_answer.span := a_span;
    v_answer.weight := a_weight;
    v_answer.capacity := a_capacity;
    v_answer.granted := v_granted;
    v_answer.remains := a_ttl;
    v_answer.ahead := v_ahead;
    v_answer.mark := CASE WHEN v_granted THEN v_line.mark ELSE '' END;
    v_answer.owner := a_owner;
    v_answer.note := a_note;
    IF v_head.token IS NULL THEN
        UPDATE fencelock_line
            SET last = v_answer.token + a_span - 1, soonest = v_now + a_ttl, since = v_now,
                id = a_id, span = a_span, capacity = a_capacity, weight = a_weight, node = a_node, owner = a_owner, note = a_note
            WHERE key = a_key;
    ELSE
        UPDATE fencelock_line SET last = v_answer.token + a_span - 1, soonest = least(soonest, v_now + a_ttl) WHERE key = a_key;
        INSERT INTO fencelock_claim
            (key, token, span, id, capacity, weight, granted, lingering, expires, since, node, mark, owner, note)
            VALUES (a_key, v_answer.token, a_span, a_id, a_capacity, a_weight, v_granted::integer, false,
                v_now + a_ttl, v_now, a_node, v_answer.mark, a_owner, a_note);
    END IF;
    RETURN NEXT v_answer;
END $$;

-- fencelock_enter joins a line, or starts again the lease of the claim with this id that
-- is in line already. a_ttl is in microseconds.
CREATE OR REPLACE FUNCTION fencelock_enter(a_key bytea, a_id bytea, a_capacity bigint, a_weight bigint, a_ttl bigint,
    a_nowait boolean, a_span bigint, a_node bigint, a_owner bytea, a_note bytea)
RETURNS SETOF fencelock_answer LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
    -- A line that nobody is in, and that has no tombstone, is changed by one statement. If that
    -- has to wait for the row, it goes by the row and the clock as they are then.
    RETURN QUERY UPDATE fencelock_line
        SET last = greatest(last + 1, fencelock_now(), 1) + a_span - 1, soonest = fencelock_now() + a_ttl, since = fencelock_now(),
            id = a_id, span = a_span, capacity = a_capacity, weight = a_weight, node = a_node, owner = a_owner, note = a_note
        WHERE key = a_key AND soonest = 9223372036854775807 AND tombstones <= fencelock_now()
            AND last <= 9223372036854775807 - 2 * 65535
        RETURNING 'ticket', NULL::bytea, NULL::bytea, last - a_span + 1, NULL::bigint, NULL::bigint, NULL::bigint, true,
            a_ttl, 0::bigint, NULL::bigint, mark, NULL::bytea, NULL::bytea;
    IF FOUND THEN
        RETURN;
    END IF;

    RETURN QUERY SELECT * FROM fencelock_enter_long(a_key, a_id, a_capacity, a_weight, a_ttl, a_nowait, a_span, a_node,
        a_owner, a_note);
END $$;

-- fencelock_enter_free is fencelock_enter for many free locks in one statement. It has one answer
-- for each that it took, with its key and id, and none for any other: a line that somebody is in,
-- that has a tombstone, or whose row another transaction is at. It waits for nobody but those who
-- make a row of the same line at that moment, so one lock does not hold up another. The texts are
-- arrays as of fencelock_renew.
CREATE OR REPLACE FUNCTION fencelock_enter_free(a_keys text, a_ids text, a_capacities text, a_weights text, a_ttls text,
    a_spans text, a_owners text, a_notes text, a_node bigint)
RETURNS SETOF fencelock_answer LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
    -- Who makes several rows makes them in one order.
    INSERT INTO fencelock_line (key, last, soonest)
        SELECT DISTINCT decode(k, 'hex') AS key, 0, 9223372036854775807 FROM unnest(a_keys::text[]) AS list (k)
            WHERE NOT EXISTS (SELECT FROM fencelock_line WHERE key = decode(k, 'hex'))
                AND NOT EXISTS (SELECT FROM fencelock_claim WHERE key = decode(k, 'hex'))
                AND NOT EXISTS (SELECT FROM fencelock_tombstone WHERE key = decode(k, 'hex'))
            ORDER BY key
        ON CONFLICT (key) DO NOTHING;
    RETURN QUERY
    WITH list AS MATERIALIZED (
        SELECT decode(k, 'hex') AS key, decode(i, 'hex') AS id, capacity, weight, ttl, span,
            decode(o, 'hex') AS owner, decode(n, 'hex') AS note
        FROM unnest(a_keys::text[], a_ids::text[], a_capacities::bigint[], a_weights::bigint[], a_ttls::bigint[],
            a_spans::bigint[], a_owners::text[], a_notes::text[]) AS list (k, i, capacity, weight, ttl, span, o, n)
    ), mine AS MATERIALIZED (
        SELECT list.* FROM list JOIN fencelock_line AS l ON l.key = list.key
            WHERE l.soonest = 9223372036854775807 FOR UPDATE OF l SKIP LOCKED
    )
    UPDATE fencelock_line AS l
        SET last = greatest(l.last + 1, fencelock_now(), 1) + mine.span - 1, soonest = fencelock_now() + mine.ttl,
            since = fencelock_now(), id = mine.id, span = mine.span, capacity = mine.capacity, weight = mine.weight,
            node = a_node, owner = mine.owner, note = mine.note
        FROM mine
        WHERE l.key = mine.key
            AND l.soonest = 9223372036854775807 AND l.tombstones <= fencelock_now()
            AND l.last <= 9223372036854775807 - 2 * 65535
        RETURNING 'ticket', l.key, l.id, l.last - l.span + 1, NULL::bigint, NULL::bigint, NULL::bigint, true,
            mine.ttl, 0::bigint, NULL::bigint, l.mark, NULL::bytea, NULL::bytea;
END $$;

-- fencelock_leave_long is fencelock_leave for everybody else than the claim in the row of the
-- line that leaves nothing behind.
CREATE OR REPLACE FUNCTION fencelock_leave_long(a_key bytea, a_id bytea, a_mark bytea, a_linger bigint, a_tombstone bigint, a_node bigint)
RETURNS SETOF fencelock_answer LANGUAGE plpgsql AS $$
DECLARE
    v_line   fencelock_line;
    v_now    bigint;
    v_answer fencelock_answer;
    v_mine   fencelock_claim;
    v_tombstone   fencelock_tombstone;
    v_in     boolean;
    v_others boolean := false;
    v_lazy   text;
BEGIN
    v_line := fencelock_open(a_key);
    v_now := fencelock_now();
    IF v_line.soonest <= v_now THEN
        RETURN QUERY SELECT * FROM fencelock_expire(a_key, v_line.mark, v_now, a_node);
        SELECT * INTO v_line FROM fencelock_line WHERE key = a_key;
    END IF;
    IF a_linger < 0 AND EXISTS (SELECT FROM fencelock_claim WHERE key = a_key AND id = a_id AND granted > 0 AND NOT lingering) THEN
        v_answer.what := 'holds';
        RETURN NEXT v_answer;
        RETURN;
    END IF;
    IF a_linger > 0 THEN
        UPDATE fencelock_claim
            SET lingering = true, granted = least(granted, 1), expires = v_now + a_linger
            WHERE key = a_key AND id = a_id AND NOT lingering
            RETURNING * INTO v_mine;
    ELSE
        DELETE FROM fencelock_claim WHERE key = a_key AND id = a_id AND NOT lingering RETURNING * INTO v_mine;
    END IF;
    v_in := FOUND;
    IF NOT v_in THEN
        SELECT * INTO v_tombstone FROM fencelock_tombstone WHERE key = a_key AND id = a_id AND expires > v_now;
    END IF;
    v_answer.what := CASE WHEN v_in OR v_line.mark_id = a_id THEN 'left' ELSE 'gone' END;
    v_answer.granted := coalesce(v_tombstone.broken, false);
    v_answer.note := v_tombstone.reason;
    RETURN NEXT v_answer;
    IF a_tombstone > 0 THEN
        PERFORM fencelock_entomb(a_key, a_id, v_now + a_tombstone, false, 'it has left', a_node);
    END IF;
    IF NOT v_in AND a_tombstone = 0 THEN
        RETURN;
    END IF;

    IF v_in AND a_mark <> '' AND v_mine.granted > 0 THEN
        v_line.mark := greatest(v_line.mark, a_mark); -- a mark never moves back
        v_line.mark_id := a_id;
    END IF;
    IF v_in AND a_linger > 0 THEN
        v_line.soonest := least(v_line.soonest, v_mine.expires);
    ELSIF v_in THEN
        v_others := EXISTS (SELECT FROM fencelock_claim WHERE key = a_key);
        IF NOT v_others THEN
            v_line.soonest := 9223372036854775807;
        ELSIF v_mine.granted = 0 THEN -- somebody may be waiting for it
            v_answer.what := 'touched';
            v_answer.key := a_key;
            RETURN NEXT v_answer;
        END IF;
    END IF;
    UPDATE fencelock_line
        SET soonest = v_line.soonest, mark = v_line.mark, mark_id = v_line.mark_id
        WHERE key = a_key;
    IF v_others THEN
        RETURN QUERY SELECT * FROM fencelock_settle(a_key, v_line.mark, v_now, a_node);
    ELSIF a_mark = '' AND a_linger = 0 AND a_tombstone = 0 THEN
        v_lazy := fencelock_lazily(); -- nobody waits: nobody was granted anything
    END IF;
END $$;

-- fencelock_leave takes a claim out of its line. If a_tombstone > 0, it leaves a tombstone for
-- that long; if a_linger > 0, its place stays taken for that long. Both are in microseconds. If
-- a_linger < 0, a claim that is granted does not leave.
CREATE OR REPLACE FUNCTION fencelock_leave(a_key bytea, a_id bytea, a_mark bytea, a_linger bigint, a_tombstone bigint, a_node bigint)
RETURNS SETOF fencelock_answer LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
    -- Whoever is in the row of the line is alone: nobody waits and is granted anything. The
    -- disk is not waited for only where a row has been changed, not where one was looked for.
    IF a_linger = 0 AND a_tombstone = 0 AND a_mark = '' THEN
        RETURN QUERY UPDATE fencelock_line
            SET soonest = 9223372036854775807, id = ''
            WHERE key = a_key AND id = a_id AND soonest > fencelock_now()
            RETURNING CASE WHEN fencelock_lazily() <> '' THEN 'left' END, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bigint,
                NULL::bigint, NULL::bigint, false, NULL::bigint, NULL::bigint, NULL::bigint,
                NULL::bytea, NULL::bytea, NULL::bytea;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;

    RETURN QUERY SELECT * FROM fencelock_leave_long(a_key, a_id, a_mark, a_linger, a_tombstone, a_node);
END $$;

-- fencelock_leave_free is fencelock_leave for many claims, each in the row of its line, that leave
-- nothing behind. It answers and waits as fencelock_enter_free does.
CREATE OR REPLACE FUNCTION fencelock_leave_free(a_keys text, a_ids text)
RETURNS SETOF fencelock_answer LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
    RETURN QUERY
    WITH list AS MATERIALIZED (
        SELECT decode(k, 'hex') AS key, decode(i, 'hex') AS id FROM unnest(a_keys::text[], a_ids::text[]) AS list (k, i)
    ), mine AS MATERIALIZED (
        SELECT list.* FROM list JOIN fencelock_line AS l ON l.key = list.key AND l.id = list.id
            FOR UPDATE OF l SKIP LOCKED
    )
    UPDATE fencelock_line AS l
        SET soonest = 9223372036854775807, id = ''
        FROM mine
        WHERE l.key = mine.key AND l.id = mine.id AND l.soonest > fencelock_now()
        RETURNING CASE WHEN fencelock_lazily() <> '' THEN 'left' END, l.key, mine.id, NULL::bigint, NULL::bigint,
            NULL::bigint, NULL::bigint, false, NULL::bigint, NULL::bigint, NULL::bigint,
            NULL::bytea, NULL::bytea, NULL::bytea;
END $$;

-- fencelock_break takes the claim whose span holds a_token out of its line, and leaves a
-- tombstone until its lease would have ended. If a_linger > 0, the place of a claim that is
-- granted stays taken for that long. If a_linger = 0, a claim that lingers already stays as it is.
CREATE OR REPLACE FUNCTION fencelock_break(a_key bytea, a_token bigint, a_reason bytea, a_linger bigint, a_node bigint)
RETURNS SETOF fencelock_answer LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    v_line   fencelock_line := fencelock_open(a_key);
    v_now    bigint := fencelock_now();
    v_answer fencelock_answer;
    v_it     fencelock_claim;
    v_ends   bigint := v_now + a_linger;
BEGIN
    IF v_line.soonest <= v_now THEN
        RETURN QUERY SELECT * FROM fencelock_expire(a_key, v_line.mark, v_now, a_node);
    END IF;
    SELECT * INTO v_it FROM fencelock_claim
        WHERE key = a_key AND token <= a_token ORDER BY token DESC LIMIT 1 FOR UPDATE;
    IF NOT FOUND OR a_token - v_it.token >= v_it.span THEN
        v_answer.what := 'gone';
        v_answer.granted := false;
        RETURN NEXT v_answer;
        RETURN;
    END IF;
    IF a_linger = 0 AND v_it.lingering THEN
        v_answer.what := 'left';
        RETURN NEXT v_answer;
        RETURN;
    END IF;
    IF a_linger > 0 AND v_it.granted > 0 THEN
        PERFORM fencelock_entomb(a_key, v_it.id, greatest(v_it.expires, v_ends), true, a_reason, v_it.node);
        IF v_it.lingering THEN
            v_ends := greatest(v_it.expires, v_ends); -- never sooner than was promised
        END IF;
        UPDATE fencelock_claim SET lingering = true, granted = 1, expires = v_ends
            WHERE key = a_key AND token = v_it.token;
        UPDATE fencelock_line SET soonest = least(soonest, v_ends) WHERE key = a_key;
    ELSE
        PERFORM fencelock_entomb(a_key, v_it.id, v_it.expires, true, a_reason, v_it.node);
        DELETE FROM fencelock_claim WHERE key = a_key AND token = v_it.token;
    END IF;
    v_answer.what := 'left';
    RETURN NEXT v_answer;
    IF v_it.node = a_node THEN
        v_answer.what := 'broken';
        v_answer.key := a_key;
        v_answer.id := v_it.id;
        v_answer.note := a_reason;
        RETURN NEXT v_answer;
    ELSE
        PERFORM pg_notify(lower('fencelock_') || v_it.node, '');
    END IF;
    RETURN QUERY SELECT * FROM fencelock_settle(a_key, v_line.mark, v_now, a_node);
END $$;

-- fencelock_adopt gives a claim that is granted another ID, owner and note, and starts its
-- lease again. A repeat finds the claim.
CREATE OR REPLACE FUNCTION fencelock_adopt(a_key bytea, a_id bytea, a_before bytea, a_ttl bigint, a_owner bytea, a_note bytea, a_node bigint)
RETURNS SETOF fencelock_answer LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    v_line   fencelock_line := fencelock_open(a_key);
    v_now    bigint := fencelock_now();
    v_answer fencelock_answer;
    v_mine   fencelock_claim;
    v_tombstone fencelock_tombstone;
BEGIN
    IF v_line.soonest <= v_now THEN
        RETURN QUERY SELECT * FROM fencelock_expire(a_key, v_line.mark, v_now, a_node);
    END IF;
    UPDATE fencelock_claim
        SET id = a_id, owner = a_owner, note = a_note, node = a_node, granted = 1, expires = greatest(expires, v_now + a_ttl)
        WHERE key = a_key AND id IN (a_id, a_before) AND granted > 0 AND NOT lingering
        RETURNING * INTO v_mine;
    IF NOT FOUND THEN
        SELECT * INTO v_tombstone FROM fencelock_tombstone WHERE key = a_key AND id = a_before AND expires > v_now;
        v_answer.what := 'gone';
        v_answer.granted := coalesce(v_tombstone.broken, false);
        v_answer.note := v_tombstone.reason;
        RETURN NEXT v_answer;
        RETURN;
    END IF;
    PERFORM fencelock_entomb(a_key, a_before, v_now + a_ttl, false, 'another process has adopted it', a_node);
    v_answer.what := 'ticket';
    v_answer.token := v_mine.token;
    v_answer.span := v_mine.span;
    v_answer.capacity := v_mine.capacity;
    v_answer.weight := v_mine.weight;
    v_answer.granted := true;
    v_answer.remains := v_mine.expires - v_now;
    v_answer.mark := v_mine.mark;
    v_answer.owner := v_mine.owner;
    v_answer.note := v_mine.note;
    RETURN NEXT v_answer;
END $$;

-- fencelock_hold is for the transaction that a claim is to be bound to. It answers whether
-- that transaction sees the grant: if not, its snapshot is older, and it would not see what
-- the holder before has committed. It waits for those who look at the claim at that moment.
CREATE OR REPLACE FUNCTION fencelock_hold(a_key bytea, a_id bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(fencelock_binding(a_id));
    RETURN EXISTS (SELECT FROM fencelock_claims(a_key) WHERE id = a_id);
END $$;

-- fencelock_bind ends the lease of a claim that is granted: from now on its transaction keeps
-- it in line, which has called fencelock_hold before.
CREATE OR REPLACE FUNCTION fencelock_bind(a_key bytea, a_id bytea)
RETURNS SETOF fencelock_answer LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    v_line   fencelock_line := fencelock_open(a_key);
    v_now    bigint := fencelock_now();
    v_answer fencelock_answer;
    v_tombstone fencelock_tombstone;
BEGIN
    IF NOT fencelock_is_bound(a_id) THEN
        v_answer.what := 'unbound';
        RETURN NEXT v_answer;
        RETURN;
    END IF;
    UPDATE fencelock_claim SET expires = 0, granted = 1
        WHERE key = a_key AND id = a_id AND granted > 0 AND NOT lingering AND (expires > v_now OR expires = 0);
    IF NOT FOUND THEN
        SELECT * INTO v_tombstone FROM fencelock_tombstone WHERE key = a_key AND id = a_id AND expires > v_now;
        v_answer.what := 'gone';
        v_answer.granted := coalesce(v_tombstone.broken, false);
        v_answer.note := v_tombstone.reason;
        RETURN NEXT v_answer;
        RETURN;
    END IF;
    UPDATE fencelock_line SET soonest = 0 WHERE key = a_key;
    v_answer.what := 'renewed';
    RETURN NEXT v_answer;
END $$;

-- fencelock_purge is fencelock_expire as a step of its own.
CREATE OR REPLACE FUNCTION fencelock_purge(a_key bytea, a_node bigint)
RETURNS SETOF fencelock_answer LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    v_line fencelock_line := fencelock_open(a_key);
BEGIN
    RETURN QUERY SELECT * FROM fencelock_expire(a_key, v_line.mark, fencelock_now(), a_node);
END $$;

-- fencelock_renew starts leases again. Its arguments are arrays as text, with keys and ids
-- in hexadecimal and leases in microseconds, so that every driver can send them. It answers
-- a row for each lease that is gone, by its place from 1, and one at the end.
--
-- It locks no lines but those that the claims are in themselves, and the other claims, always
-- in the order of keys and tokens. Whoever moves a claim out of the row of its line meanwhile
-- takes it to where it is looked for next. The clock is read when a row is looked at, and
-- again if that had to wait for another step.
CREATE OR REPLACE FUNCTION fencelock_renew(a_keys text, a_tokens text, a_ids text, a_ttls text)
RETURNS SETOF fencelock_answer LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    v_one       record;
    v_answer    fencelock_answer;
    v_tombstone fencelock_tombstone;
BEGIN
    FOR v_one IN
        SELECT place, decode(k, 'hex') AS key, decode(i, 'hex') AS id, ttl
        FROM unnest(a_keys::text[], a_tokens::bigint[], a_ids::text[], a_ttls::bigint[])
            WITH ORDINALITY AS list (k, token, i, ttl, place)
        ORDER BY 2, token, place
    LOOP
        UPDATE fencelock_line
            SET soonest = greatest(soonest, fencelock_now() + v_one.ttl)
            WHERE key = v_one.key AND id = v_one.id AND soonest > fencelock_now();
        IF NOT FOUND THEN
            UPDATE fencelock_claim
                SET expires = greatest(expires, fencelock_now() + v_one.ttl), granted = least(granted, 1)
                WHERE key = v_one.key AND id = v_one.id AND NOT lingering AND expires > fencelock_now();
        END IF;
        IF NOT FOUND THEN
            SELECT * INTO v_tombstone FROM fencelock_tombstone
                WHERE key = v_one.key AND id = v_one.id AND expires > fencelock_now();
            v_answer.what := 'lost';
            v_answer.token := v_one.place;
            v_answer.granted := coalesce(v_tombstone.broken, false);
            v_answer.note := v_tombstone.reason;
            RETURN NEXT v_answer;
        END IF;
    END LOOP;
    v_answer.what := 'renewed';
    RETURN NEXT v_answer;
END $$;

-- fencelock_sweep goes through the next a_many lines, from where the last sweep of any
-- process has ended. It removes claims whose processes have died, in lines that nobody has
-- asked for since, forgets lines that are idle: empty, without a mark, and with a counter
-- that the clock has overtaken a day ago, and ends what has rested long enough. It waits
-- for no step but those that renew what has expired.
CREATE OR REPLACE FUNCTION fencelock_sweep(a_many bigint, a_node bigint)
RETURNS SETOF fencelock_answer LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    v_now   bigint := fencelock_now();
    v_day   bigint := v_now - 86400000000;
    v_after text;
    v_n     bigint := 0;
    v_line  fencelock_line;
BEGIN
    SELECT value INTO v_after FROM fencelock_meta WHERE name = 'swept' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR v_line IN SELECT * FROM fencelock_line WHERE key > decode(v_after, 'hex') ORDER BY key LIMIT a_many LOOP
        v_n := v_n + 1;
        v_after := encode(v_line.key, 'hex');
        CONTINUE WHEN v_line.soonest > v_now AND (v_line.last >= v_day OR v_line.mark <> '');
        PERFORM FROM fencelock_line WHERE key = v_line.key FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        v_line := fencelock_open(v_line.key);
        IF v_line.soonest <= v_now THEN
            RETURN QUERY SELECT * FROM fencelock_expire(v_line.key, v_line.mark, v_now, a_node);
        END IF;
        IF v_line.last < v_day AND v_line.mark = '' THEN
            DELETE FROM fencelock_line
                WHERE key = v_line.key AND NOT EXISTS (SELECT FROM fencelock_claim WHERE key = v_line.key);
        END IF;
    END LOOP;
    UPDATE fencelock_meta SET value = CASE WHEN v_n < a_many THEN '' ELSE v_after END WHERE name = 'swept';
    DELETE FROM fencelock_tombstone WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM fencelock_tombstone WHERE expires <= v_now LIMIT a_many FOR UPDATE SKIP LOCKED));
END $$;

-- fencelock_record adds to the history. a_entries is a JSON array of objects with a key in
-- base64, a token, and an entry as text. Of each of these keys, the last a_keep grants stay;
-- of all keys, what was written within the last a_age microseconds.
CREATE OR REPLACE FUNCTION fencelock_record(a_entries bytea, a_keep bigint, a_age bigint)
RETURNS TABLE (note text) LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    v_now     bigint := fencelock_now();
    v_entries jsonb  := convert_from(a_entries, 'UTF8')::jsonb;
BEGIN
    PERFORM fencelock_lazily();
    INSERT INTO fencelock_history AS h (key, token, written, entry)
        SELECT decode(e->>'key', 'base64'), (e->>'token')::bigint, v_now, (e->>'entry')::jsonb
            FROM jsonb_array_elements(v_entries) AS e ORDER BY 1, 2
        ON CONFLICT (key, token) DO UPDATE SET written = excluded.written, entry = h.entry || excluded.entry;
    DELETE FROM fencelock_history AS h
        USING (SELECT DISTINCT decode(e->>'key', 'base64') AS key FROM jsonb_array_elements(v_entries) AS e) AS k
            CROSS JOIN LATERAL (
                SELECT token FROM fencelock_history WHERE key = k.key ORDER BY token DESC OFFSET a_keep LIMIT 1) AS old
        WHERE h.key = k.key AND h.token <= old.token;
    DELETE FROM fencelock_history WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM fencelock_history WHERE written < v_now - a_age LIMIT 1000 FOR UPDATE SKIP LOCKED));
END $$;

-- fencelock_format says which format the tables have. It is made last: where it is, all the
-- others are.
CREATE OR REPLACE FUNCTION fencelock_format() RETURNS TABLE (note text) LANGUAGE sql STABLE AS
$$ SELECT value FROM fencelock_meta WHERE name = 'format' $$;

INSERT INTO fencelock_meta (name, value) VALUES ('format', '1'), ('swept', '') ON CONFLICT (name) DO NOTHING;

COMMIT;
