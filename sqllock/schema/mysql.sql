-- The tables and procedures of fencelock on MariaDB 10.6 or later and MySQL 8.0.29 or later,
-- format 1. It is tested with MariaDB 10.11 and MySQL 9.7.
-- Running this again changes nothing, also when several programs do it at once.
-- "fencelock_" is the prefix of all names; another one may be chosen.
--
-- This is for the mariadb or mysql client, because of DELIMITER. Whoever runs it needs
-- CREATE and CREATE ROUTINE in the database; whoever uses the locks needs SELECT, INSERT,
-- UPDATE, DELETE and EXECUTE.
--
-- Times are in microseconds since 1970 by the clock of this server, in no time zone. All
-- text is binary: other collations take 'a', 'A', 'a ' and 'á' for one key.

DELIMITER $$

-- Procedures keep the mode in which they were made.
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'$$
SET SESSION TRANSACTION READ WRITE$$

CREATE TABLE IF NOT EXISTS fencelock_meta (
    name  VARBINARY(32)   NOT NULL PRIMARY KEY,
    value VARBINARY(1024)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC$$

-- One row per key that is in use, was in use within about a day, or has a mark. Whoever
-- changes who is in line locks this row first.
--
-- A claim that enters a line in which nobody is has no row of its own: it is kept in this
-- one, granted, as long as it stays alone. Then id is its id, and its token is last - span + 1.
-- Whoever opens another step on the line moves it to its own row first. It does not come back.
CREATE TABLE IF NOT EXISTS fencelock_line (
    lock_key VARBINARY(1024) NOT NULL PRIMARY KEY,
    last     BIGINT          NOT NULL,   -- the largest token drawn
    front    BIGINT          NOT NULL,   -- no row of a claim in line has a lower token
    mark     VARBINARY(512),             -- what the last finished holder left, or null
    mark_id  VARBINARY(256),              -- the claim that wrote it
    tombstones TINYINT       NOT NULL DEFAULT 1,    -- 0: there is no tombstone here
    id       VARBINARY(256),             -- of the claim that is kept here, or null
    span     BIGINT          NOT NULL DEFAULT 1,    -- these are the claim's, as below, or what is left of them
    capacity BIGINT          NOT NULL DEFAULT 1,
    weight   BIGINT          NOT NULL DEFAULT 1,
    expires  BIGINT          NOT NULL DEFAULT 0,
    since    BIGINT          NOT NULL DEFAULT 0,
    node     BIGINT          NOT NULL DEFAULT 0,
    owner    VARBINARY(256)  NOT NULL DEFAULT '',
    note     VARBINARY(1024) NOT NULL DEFAULT '',
    CHECK (last BETWEEN 0 AND 9223372036854710272),
    CHECK (id IS NULL OR front > last AND last >= span AND span BETWEEN 1 AND 65535 AND weight BETWEEN 1 AND capacity AND capacity <= 1048576)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC$$

-- One row per claim that is not kept in its line's. The order of tokens is the order of arrival. Whoever reads a line
-- begins at its front: what was deleted before that is still there for the server to step
-- over, until it has no reader left that may see it, and a backup may be such a reader for
-- hours.
CREATE TABLE IF NOT EXISTS fencelock_claim (
    lock_key  VARBINARY(1024) NOT NULL,
    token     BIGINT          NOT NULL,
    span      BIGINT          NOT NULL,
    id        VARBINARY(256)   NOT NULL,
    capacity  BIGINT          NOT NULL,
    weight    BIGINT          NOT NULL,
    granted   TINYINT         NOT NULL,   -- 0 waits; 1 granted
    lingering TINYINT         NOT NULL,   -- 1: its holder left, the place stays taken
    expires   BIGINT          NOT NULL,   -- 0: it is bound to a transaction, and ends with it
    since     BIGINT          NOT NULL,   -- granted since, or waiting since
    node      BIGINT          NOT NULL,   -- the backend value that waits for it
    news      BIGINT,                     -- the same, while it is to be told of its grant
    mark      VARBINARY(512),             -- the line's mark when it was granted
    owner     VARBINARY(256)  NOT NULL,
    note      VARBINARY(1024) NOT NULL,
    PRIMARY KEY (lock_key, token),
    CHECK (token BETWEEN 1 AND 9223372036854710272 AND span BETWEEN 1 AND 65535 AND weight BETWEEN 1 AND capacity AND capacity <= 1048576),
    KEY fencelock_claim_id (id),
    KEY fencelock_claim_news (news)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC$$

-- Tombstones: claim IDs that may not enter before expires.
CREATE TABLE IF NOT EXISTS fencelock_tombstone (
    lock_key VARBINARY(1024) NOT NULL,
    id       VARBINARY(256)   NOT NULL,
    expires  BIGINT          NOT NULL,
    broken   TINYINT         NOT NULL,   -- 1: an operator ended it
    reason   VARBINARY(1024) NOT NULL,
    node     BIGINT          NOT NULL,   -- the backend value that held it
    PRIMARY KEY (lock_key, id),
    KEY fencelock_tombstone_end (expires),
    KEY fencelock_tombstone_news (node, broken)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC$$

-- One row per claim that is bound to a transaction, or is about to be. The transaction has
-- its row locked, and the server unlocks it when the transaction ends or its connection is
-- closed, after its changes are seen by others. A bound claim has no lease. It is in line for as
-- long as that row is locked, or not there. Those who look whether it is locked do not wait
-- for it, and lock the row of the line before, so they do not take each other for the transaction.
CREATE TABLE IF NOT EXISTS fencelock_binding (
    id    VARBINARY(256) NOT NULL PRIMARY KEY,
    since BIGINT         NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC$$

-- The history: one row per grant. entry is what is known of it, a JSON object: owner, note,
-- kind, permits, asked, granted, ended, end, reason, broken, broken_by, broken_for, lost.
CREATE TABLE IF NOT EXISTS fencelock_history (
    lock_key VARBINARY(1024) NOT NULL,
    token    BIGINT          NOT NULL,
    written  BIGINT          NOT NULL,
    entry    MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (lock_key, token),
    KEY fencelock_history_age (written)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC$$

INSERT IGNORE INTO fencelock_meta (name, value) VALUES ('format', '1')$$

-- A server that ends a statement of a procedure (KILL QUERY, max_statement_time) does not
-- always raise an error. A subquery is then NULL or false (MariaDB 10.11, MySQL 9.7), or a
-- DELETE removes nothing (MariaDB 10.11), and the procedure goes on and commits. So the
-- procedures keep four rules:
--   1. There is no subquery but in FROM. Whoever reads a table names it in FROM.
--   2. A DELETE that must have happened is checked. fencelock_v1_ended raises the error.
--   3. A line is taken for empty only if two statements find nobody in it.
--   4. The clock is checked for NULL.

-- The rows of an answer say in their column "what" which of their columns count:
--
--   ticket   the claim itself: token, span, capacity, weight, granted, remains, ahead, mark, owner, note;
--            without a span the claim is granted as it was asked for, with this token and mark
--   head     the first claim of a line in which it is not granted: token, remains, since, owner, note
--   busy     it was refused: ahead
--   kind     the line has another capacity: capacity
--   gone     it is not in line: granted if it was broken, note is the reason
--   left     it has left
--   holds    it is granted, and was to leave only if it waits
--   grant    a waiting claim of the node that asked was granted: key, id, remains, mark
--   touched  claims were removed whose owners may be waiting
--   broken   a claim of the node that asked was broken: key, id, note
--   lost     a lease of a renewal is gone: token is its place in the list, granted and note as of gone
--   renewed  all leases of a renewal were gone through; the claim is bound to its transaction, or may be
--   unbound  no transaction that this server knows has the claim's row locked
--
-- They count only if the call succeeds. A key that is left out is the one that was asked for.

-- A step is one call of one procedure, so that it is one round trip, and so that nobody
-- keeps a line locked by stopping in the middle: the server alone is in the middle.


-- Raises the error that the server did not: 1317, a statement was ended. The step is rolled
-- back then.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_ended()
SQL SECURITY INVOKER
BEGIN
    SIGNAL SQLSTATE '70100' SET MYSQL_ERRNO = 1317, MESSAGE_TEXT = 'a statement of a step was ended';
END$$

-- Raises an error if anybody is in a line that was found to be empty.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_empty(IN p_key VARBINARY(1024))
SQL SECURITY INVOKER
BEGIN
    DECLARE v_claims INT;
    SELECT COUNT(*) INTO v_claims FROM fencelock_claim WHERE lock_key = p_key;
    IF v_claims IS NULL OR v_claims > 0 THEN
        CALL fencelock_v1_ended();
    END IF;
END$$

-- Reads the clock: SYSDATE, which nobody can set for a session as NOW can be by SET
-- timestamp, less the session's offset from UTC. NOW and UTC_TIMESTAMP are one instant
-- seen in two zones, which tells the offset also in the hour that an autumn night has
-- twice. Where they have been set to another day it cannot be told that way.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_clock(OUT p_now BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_local, v_utc DATETIME(6);
    SELECT SYSDATE(6), NOW(6), UTC_TIMESTAMP(6) INTO v_now, v_local, v_utc;
    IF ABS(TIMESTAMPDIFF(SECOND, v_local, v_now)) < 1200 THEN
        SET p_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', v_now)
                  + TIMESTAMPDIFF(MICROSECOND, v_local, v_utc);
    ELSE
        SET p_now = CAST(UNIX_TIMESTAMP(v_now) * 1000000 AS SIGNED);
    END IF;
END$$

-- The two steps of a free lock, enter and leave, read the clock while they change the row of
-- the line, by the same words in one: to call a procedure costs as much as to change a row.

-- Opens a step on one line: locks its row, and then reads the clock. p_make makes the
-- row if there is none; otherwise p_last is null then, and nothing is locked. A claim that
-- the line keeps gets its own row, so all who come this way find claims in their table only.
--
-- READ COMMITTED, so that each statement sees what was committed while this one waited.
-- The row is made in a transaction of its own: of many who insert it at once all but one
-- would share a lock on it, and all of them want it alone next, which is a deadlock.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_open(
    IN p_key VARBINARY(1024), IN p_make TINYINT,
    OUT p_now BIGINT, OUT p_last BIGINT, OUT p_front BIGINT, OUT p_mark VARBINARY(512), OUT p_mark_id VARBINARY(256))
SQL SECURITY INVOKER
BEGIN
    DECLARE v_again TINYINT DEFAULT 1;
    DECLARE v_id VARBINARY(256);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    COMMIT;
    WHILE v_again DO
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        START TRANSACTION READ WRITE;
        SET p_last = NULL;
        SELECT last, IF(id IS NULL, front, last - span + 1), mark, mark_id, id INTO p_last, p_front, p_mark, p_mark_id, v_id
            FROM fencelock_line WHERE lock_key = p_key FOR UPDATE;
        SET v_again = p_last IS NULL AND p_make;
        IF v_again THEN
            INSERT IGNORE INTO fencelock_line (lock_key, last, front) VALUES (p_key, 0, 0);
            COMMIT;
        END IF;
    END WHILE;
    IF v_id IS NOT NULL THEN
        INSERT INTO fencelock_claim
            (lock_key, token, span, id, capacity, weight, granted, lingering, expires, since, node, mark, owner, note)
            SELECT lock_key, last - span + 1, span, id, capacity, weight, 1, 0, expires, since, node, mark, owner, note
                FROM fencelock_line WHERE lock_key = p_key;
        UPDATE fencelock_line SET id = NULL, front = p_front WHERE lock_key = p_key;
    END IF;
    CALL fencelock_v1_clock(p_now);
    IF p_now IS NULL THEN
        CALL fencelock_v1_ended();
    END IF;
END$$

-- Finds the new front of a line that is locked, and from which somebody was removed, and
-- grants what fits. The answer has a row for each of p_node.
--
-- It goes through those who wait in order of arrival, up to the first that does not fit: all
-- claims of a line have one capacity.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_settle(
    IN p_key VARBINARY(1024), INOUT p_front BIGINT, IN p_now BIGINT, IN p_mark VARBINARY(512), IN p_node BIGINT)
SQL SECURITY INVOKER
settle: BEGIN
    DECLARE v_first, v_token, v_weight, v_capacity, v_granted, v_node, v_expires, v_before BIGINT;
    DECLARE v_id VARBINARY(256);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    SELECT token INTO v_first FROM fencelock_claim WHERE lock_key = p_key AND token >= p_front ORDER BY token LIMIT 1;
    IF v_first IS NULL THEN
        CALL fencelock_v1_empty(p_key);
    END IF;
    UPDATE fencelock_line SET front = COALESCE(v_first, last + 1) WHERE lock_key = p_key;
    IF v_first IS NULL THEN
        LEAVE settle;
    END IF;
    SET p_front = v_first;
    SELECT token INTO v_token
        FROM fencelock_claim WHERE lock_key = p_key AND token >= p_front AND granted = 0 ORDER BY token LIMIT 1;
    IF v_token IS NULL THEN
        LEAVE settle;
    END IF;
    SELECT COALESCE(SUM(weight), 0) INTO v_before
        FROM fencelock_claim WHERE lock_key = p_key AND token >= p_front AND token < v_token;
    SET v_token = v_token - 1;
    walk: LOOP
        SET v_weight = NULL;
        SELECT token, id, weight, capacity, granted, node, expires
            INTO v_token, v_id, v_weight, v_capacity, v_granted, v_node, v_expires
            FROM fencelock_claim WHERE lock_key = p_key AND token > v_token ORDER BY token LIMIT 1;
        IF v_weight IS NULL THEN
            LEAVE walk;
        END IF;
        SET v_before = v_before + v_weight;
        IF v_granted = 0 AND v_before <= v_capacity THEN
            UPDATE fencelock_claim
                SET granted = 1, since = p_now, mark = p_mark, news = NULLIF(v_node, p_node)
                WHERE lock_key = p_key AND token = v_token;
            IF v_node = p_node THEN
                SELECT 'grant' AS what, v_id AS id, p_mark AS mark, v_expires - p_now AS remains;
            END IF;
        ELSEIF v_granted = 0 THEN
            LEAVE walk;
        END IF;
    END LOOP;
END$$

-- Removes what has expired from a line that is locked. The statement that removes looks
-- at each claim again: it may have been renewed in time since the clock was read. At most one
-- claim is bound, because it holds the line alone. If its transaction has ended, it is made one
-- that has expired.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_expire(
    IN p_key VARBINARY(1024), INOUT p_front BIGINT, IN p_now BIGINT, IN p_mark VARBINARY(512), IN p_node BIGINT,
    OUT p_touched TINYINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_left, v_ended INT;
    DECLARE v_bound BIGINT;
    DECLARE v_id VARBINARY(256);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    SELECT COUNT(*) > 0, MIN(IF(expires = 0, token, NULL)) INTO p_touched, v_bound FROM fencelock_claim
        WHERE lock_key = p_key AND token >= p_front AND expires <= p_now;
    IF v_bound IS NOT NULL THEN
        SELECT id INTO v_id FROM fencelock_claim WHERE lock_key = p_key AND token = v_bound;
        SELECT COUNT(*) INTO v_ended FROM fencelock_binding WHERE id = v_id FOR UPDATE SKIP LOCKED;
        IF v_ended = 1 THEN
            UPDATE fencelock_claim SET expires = 1 WHERE lock_key = p_key AND token = v_bound;
            IF ROW_COUNT() <> 1 THEN
                CALL fencelock_v1_ended();
            END IF;
            DELETE FROM fencelock_binding WHERE id = v_id;
        END IF;
        SELECT COUNT(*) > 0 INTO p_touched FROM fencelock_claim
            WHERE lock_key = p_key AND token >= p_front AND expires BETWEEN 1 AND p_now;
    END IF;
    IF p_touched THEN
        DELETE FROM fencelock_claim WHERE lock_key = p_key AND token >= p_front AND expires BETWEEN 1 AND p_now;
        SELECT COUNT(*) INTO v_left FROM fencelock_claim
            WHERE lock_key = p_key AND token >= p_front AND expires BETWEEN 1 AND p_now;
        IF v_left > 0 THEN
            CALL fencelock_v1_ended();
        END IF;
        CALL fencelock_v1_settle(p_key, p_front, p_now, p_mark, p_node);
    END IF;
END$$

-- Writes a tombstone, in a line that is locked. An earlier one is only prolonged, and what an
-- operator wrote stays the reason. The line says that there is one, for a free lock is
-- entered without a look at them.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_entomb(
    IN p_key VARBINARY(1024), IN p_id VARBINARY(256), IN p_now BIGINT, IN p_expires BIGINT,
    IN p_broken TINYINT, IN p_reason VARBINARY(1024), IN p_node BIGINT)
SQL SECURITY INVOKER
BEGIN
    DELETE FROM fencelock_tombstone WHERE lock_key = p_key AND expires <= p_now;
    INSERT INTO fencelock_tombstone (lock_key, id, expires, broken, reason, node)
        VALUES (p_key, p_id, p_expires, p_broken, p_reason, p_node)
        ON DUPLICATE KEY UPDATE
            expires = GREATEST(expires, p_expires),
            reason = IF(broken > p_broken, reason, p_reason),
            broken = GREATEST(broken, p_broken);
    UPDATE fencelock_line SET tombstones = 1 WHERE lock_key = p_key;
END$$

-- Enter of a line in which somebody is, or may be.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_enter_any(
    IN p_key VARBINARY(1024), IN p_id VARBINARY(256), IN p_capacity BIGINT, IN p_weight BIGINT,
    IN p_ttl BIGINT, IN p_nowait TINYINT, IN p_span BIGINT, IN p_node BIGINT,
    IN p_owner VARBINARY(256), IN p_note VARBINARY(1024))
SQL SECURITY INVOKER
enter: BEGIN
    DECLARE v_now, v_last, v_front, v_token, v_drawn, v_capacity, v_weight, v_span, v_ends, v_expires,
        v_kind, v_sum, v_ahead, v_head_token, v_head_since, v_head_expires BIGINT;
    DECLARE v_mark VARBINARY(512);
    DECLARE v_mark_id VARBINARY(256);
    DECLARE v_owner, v_head_owner VARBINARY(256);
    DECLARE v_note, v_head_note, v_reason VARBINARY(1024);
    DECLARE v_tombstones INT;
    DECLARE v_answer, v_touched, v_granted, v_lingering, v_broken, v_crowd, v_waits TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;

    CALL fencelock_v1_open(p_key, 1, v_now, v_last, v_front, v_mark, v_mark_id);
    SELECT 1 INTO v_crowd FROM fencelock_claim WHERE lock_key = p_key AND token >= v_front ORDER BY token LIMIT 1;
    IF v_crowd THEN
        CALL fencelock_v1_expire(p_key, v_front, v_now, v_mark, p_node, v_touched);
        SELECT token, span, capacity, weight, owner, note, granted, lingering, expires, IF(granted, mark, NULL)
            INTO v_token, v_span, v_capacity, v_weight, v_owner, v_note, v_granted, v_lingering, v_expires, v_mark
            FROM fencelock_claim WHERE id = p_id AND lock_key = p_key;
        SELECT capacity INTO v_kind FROM fencelock_claim WHERE lock_key = p_key AND token >= v_front ORDER BY token LIMIT 1;
    END IF;

    IF v_token IS NOT NULL AND v_lingering = 0 AND (v_capacity <> p_capacity OR v_weight <> p_weight) THEN
        SET v_answer = 4;
    ELSEIF v_token IS NOT NULL AND v_lingering = 0 THEN
        SET v_expires = GREATEST(v_expires, v_now + p_ttl);
        UPDATE fencelock_claim SET expires = GREATEST(expires, v_expires), node = p_node,
                news = IF(news IS NULL, NULL, p_node)
            WHERE lock_key = p_key AND token = v_token;
    ELSE
        SELECT broken, reason, 3 INTO v_broken, v_reason, v_answer
            FROM fencelock_tombstone WHERE lock_key = p_key AND id = p_id AND expires > v_now;
        IF v_answer = 0 AND v_token IS NOT NULL THEN
            -- It lingers: a late repeat of its Enter must not bring it back, nor stand
            -- in line a second time.
            SET v_answer = 3, v_reason = 'it has left';
        ELSEIF v_answer = 0 AND v_kind <> p_capacity THEN
            SET v_answer = 2;
        END IF;
        IF v_answer = 0 THEN
            IF v_kind IS NOT NULL THEN
                -- Nobody fits behind one who waits, and those who hold are few. A SET
                -- would lock the rows that it reads, in the way of those who renew.
                SELECT 1 INTO v_waits FROM fencelock_claim
                    WHERE lock_key = p_key AND token >= v_front AND granted = 0 ORDER BY token LIMIT 1;
                SET v_sum = v_kind;
                IF v_waits = 0 THEN
                    SELECT SUM(weight) INTO v_sum FROM fencelock_claim WHERE lock_key = p_key AND token >= v_front;
                END IF;
            END IF;
            IF v_kind IS NULL THEN
                CALL fencelock_v1_empty(p_key);
                SELECT COUNT(*) > 0 INTO v_tombstones FROM fencelock_tombstone WHERE lock_key = p_key AND expires > v_now;
            ELSEIF v_sum IS NULL THEN
                CALL fencelock_v1_ended();
            END IF;
            SET v_granted = COALESCE(v_sum, 0) + p_weight <= p_capacity;
            IF p_nowait AND v_granted = 0 THEN
                SET v_answer = 1;
            ELSE
                IF v_crowd THEN
                    SELECT token + span - 1 INTO v_drawn
                        FROM fencelock_claim WHERE lock_key = p_key ORDER BY token DESC LIMIT 1;
                END IF;
                SET v_token = GREATEST(v_last + 1, COALESCE(v_drawn, 0) + 1, v_now, 1);
                SET v_span = p_span, v_capacity = p_capacity, v_weight = p_weight, v_owner = p_owner, v_note = p_note,
                    v_expires = v_now + p_ttl;
                IF v_granted = 0 THEN
                    SET v_mark = NULL;
                END IF;
                IF v_kind IS NULL THEN
                    UPDATE fencelock_line SET last = v_token + p_span - 1, front = v_token + p_span, id = p_id, span = p_span,
                            capacity = p_capacity, weight = p_weight, expires = v_expires, since = v_now, node = p_node,
                            owner = p_owner, note = p_note,
                            tombstones = v_tombstones
                        WHERE lock_key = p_key;
                ELSE
                    INSERT INTO fencelock_claim
                        (lock_key, token, span, id, capacity, weight, granted, lingering, expires, since, node, mark, owner, note)
                        VALUES (p_key, v_token, p_span, p_id, p_capacity, p_weight, v_granted, 0, v_expires, v_now, p_node,
                            v_mark, p_owner, p_note);
                    UPDATE fencelock_line SET last = v_token + p_span - 1 WHERE lock_key = p_key;
                END IF;
            END IF;
        END IF;
    END IF;
    IF v_answer = 1 OR v_answer = 0 AND v_granted = 0 THEN
        SELECT owner, note, token, since, expires
            INTO v_head_owner, v_head_note, v_head_token, v_head_since, v_head_expires
            FROM fencelock_claim WHERE lock_key = p_key AND token >= v_front ORDER BY token LIMIT 1;
        SELECT COUNT(*) INTO v_ahead FROM (SELECT 1 FROM fencelock_claim
            WHERE lock_key = p_key AND token >= v_front AND (v_answer = 1 OR token < v_token) LIMIT 1024) before_it;
    END IF;
    COMMIT;
    IF v_touched THEN
        SELECT 'touched' AS what;
    END IF;
    IF v_head_token IS NOT NULL THEN
        SELECT 'head' AS what, v_head_token AS token, IF(v_head_expires = 0, 100000, v_head_expires - v_now) AS remains, v_head_since AS since,
            v_head_owner AS owner, v_head_note AS note;
    END IF;
    IF v_answer = 3 THEN
        SELECT 'gone' AS what, v_broken AS granted, v_reason AS note;
    ELSEIF v_answer = 4 THEN
        SELECT 'reused' AS what;
    ELSEIF v_answer = 2 THEN
        SELECT 'kind' AS what, v_kind AS capacity;
    ELSEIF v_answer = 1 THEN
        SELECT 'busy' AS what, v_ahead AS ahead;
    ELSE
        SELECT 'ticket' AS what, v_token AS token, v_span AS span, v_capacity AS capacity, v_weight AS weight,
            v_granted AS granted, v_expires - v_now AS remains, v_ahead AS ahead, v_mark AS mark,
            v_owner AS owner, v_note AS note;
    END IF;
END$$

-- Enter. A line that nobody is in, and that has no tombstone, takes one change of its row. What is asked of that row is asked when it
-- is locked, as its clock is read then. The procedure has no variables: the server makes all
-- of them anew for each call. Any other line is opened.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_enter(
    IN p_key VARBINARY(1024), IN p_id VARBINARY(256), IN p_capacity BIGINT, IN p_weight BIGINT,
    IN p_ttl BIGINT, IN p_nowait TINYINT, IN p_span BIGINT, IN p_node BIGINT,
    IN p_owner VARBINARY(256), IN p_note VARBINARY(1024))
SQL SECURITY INVOKER
BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION READ WRITE;
    -- What is assigned first is there for what comes behind it.
    UPDATE fencelock_line SET
            since = IF(ABS(TIMESTAMPDIFF(SECOND, NOW(6), SYSDATE(6))) < 1200,
                TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', SYSDATE(6)) + TIMESTAMPDIFF(MICROSECOND, NOW(6), UTC_TIMESTAMP(6)),
                CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)),
            expires = since + p_ttl,
            last = LAST_INSERT_ID(GREATEST(last + 1, since, 1)) + p_span - 1,
            front = last + 1,
            mark = (@fencelock_mark := mark),
            id = p_id, span = p_span, capacity = p_capacity, weight = p_weight, node = p_node, owner = p_owner, note = p_note
        WHERE lock_key = p_key AND id IS NULL AND front > last AND tombstones = 0;
    IF ROW_COUNT() = 1 THEN
        COMMIT;
        SELECT 'ticket' AS what, LAST_INSERT_ID() AS token, @fencelock_mark AS mark;
    ELSE
        CALL fencelock_v1_enter_any(p_key, p_id, p_capacity, p_weight, p_ttl, p_nowait, p_span, p_node, p_owner, p_note);
    END IF;
END$$

-- Leave of a line in which others may be, or that keeps something. If p_linger < 0, a claim that is
-- granted does not leave.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_leave_any(
    IN p_key VARBINARY(1024), IN p_id VARBINARY(256), IN p_mark VARBINARY(512), IN p_linger BIGINT,
    IN p_tombstone BIGINT, IN p_node BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_last, v_front, v_token BIGINT;
    DECLARE v_mark VARBINARY(512);
    DECLARE v_mark_id VARBINARY(256);
    DECLARE v_reason VARBINARY(1024);
    DECLARE v_gone, v_broken, v_touched, v_granted, v_lingering, v_holds TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;

    CALL fencelock_v1_open(p_key, p_tombstone > 0, v_now, v_last, v_front, v_mark, v_mark_id);
    IF v_last IS NOT NULL THEN
        CALL fencelock_v1_expire(p_key, v_front, v_now, v_mark, p_node, v_touched);
    END IF;
    SELECT token, granted, lingering INTO v_token, v_granted, v_lingering
        FROM fencelock_claim WHERE id = p_id AND lock_key = p_key;
    IF v_last IS NULL OR v_lingering THEN
        SET v_token = NULL;
    END IF;
    IF v_token IS NULL AND COALESCE(v_mark_id, '') <> p_id THEN
        SET v_gone = 1;
        SELECT broken, reason INTO v_broken, v_reason
            FROM fencelock_tombstone WHERE lock_key = p_key AND id = p_id AND expires > v_now;
    END IF;
    SET v_holds = p_linger < 0 AND v_token IS NOT NULL AND v_granted;
    IF p_tombstone > 0 AND NOT v_holds THEN
        CALL fencelock_v1_entomb(p_key, p_id, v_now, v_now + p_tombstone, 0, 'it has left', p_node);
    END IF;
    IF v_token IS NOT NULL AND NOT v_holds THEN
        IF LENGTH(p_mark) > 0 AND v_granted THEN
            SET v_mark = GREATEST(COALESCE(v_mark, ''), p_mark); -- a mark never moves back
            UPDATE fencelock_line SET mark = v_mark, mark_id = p_id WHERE lock_key = p_key;
        END IF;
        IF p_linger > 0 THEN
            UPDATE fencelock_claim SET lingering = 1, news = NULL, expires = v_now + p_linger
                WHERE lock_key = p_key AND token = v_token;
        ELSE
            DELETE FROM fencelock_claim WHERE lock_key = p_key AND token = v_token;
            IF ROW_COUNT() <> 1 THEN
                CALL fencelock_v1_ended();
            END IF;
            SET v_touched = v_touched OR v_granted = 0;
            CALL fencelock_v1_settle(p_key, v_front, v_now, v_mark, p_node);
        END IF;
    END IF;
    COMMIT;
    IF v_touched THEN
        SELECT 'touched' AS what;
    END IF;
    IF v_gone THEN
        SELECT 'gone' AS what, v_broken AS granted, v_reason AS note;
    ELSEIF v_holds THEN
        SELECT 'holds' AS what;
    ELSE
        SELECT 'left' AS what;
    END IF;
END$$

-- Leave. If the line keeps the claim, that takes one change of the row. Any other line is
-- opened, and so is one that gets a tombstone or where the place is to linger.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_leave(
    IN p_key VARBINARY(1024), IN p_id VARBINARY(256), IN p_mark VARBINARY(512), IN p_linger BIGINT,
    IN p_tombstone BIGINT, IN p_node BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION READ WRITE;
    UPDATE fencelock_line SET mark = IF(LENGTH(p_mark) > 0, GREATEST(COALESCE(mark, ''), p_mark), mark), mark_id = IF(LENGTH(p_mark) > 0, id, mark_id), id = NULL
        WHERE lock_key = p_key AND id = p_id AND p_tombstone = 0 AND p_linger = 0
            AND expires > IF(ABS(TIMESTAMPDIFF(SECOND, NOW(6), SYSDATE(6))) < 1200,
                TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', SYSDATE(6)) + TIMESTAMPDIFF(MICROSECOND, NOW(6), UTC_TIMESTAMP(6)),
                CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED));
    IF ROW_COUNT() = 1 THEN
        COMMIT;
        SELECT 'left' AS what;
    ELSE
        CALL fencelock_v1_leave_any(p_key, p_id, p_mark, p_linger, p_tombstone, p_node);
    END IF;
END$$

-- Break. It leaves a tombstone until the lease would have ended. If p_linger > 0, the place of a
-- claim that is granted stays taken for that long. If p_linger = 0, a claim that lingers already
-- stays as it is. No linger ends sooner than an earlier one has promised.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_break(
    IN p_key VARBINARY(1024), IN p_token BIGINT, IN p_reason VARBINARY(1024), IN p_linger BIGINT, IN p_node BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_last, v_front, v_token, v_span, v_node, v_expires BIGINT;
    DECLARE v_mark VARBINARY(512);
    DECLARE v_mark_id, v_id VARBINARY(256);
    DECLARE v_touched, v_granted, v_lingering TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;

    CALL fencelock_v1_open(p_key, 0, v_now, v_last, v_front, v_mark, v_mark_id);
    IF v_last IS NOT NULL THEN
        CALL fencelock_v1_expire(p_key, v_front, v_now, v_mark, p_node, v_touched);
        SELECT token, span, id, node, expires, granted, lingering
            INTO v_token, v_span, v_id, v_node, v_expires, v_granted, v_lingering
            FROM fencelock_claim WHERE lock_key = p_key AND token >= v_front AND token <= p_token
            ORDER BY token DESC LIMIT 1 FOR UPDATE;
        IF v_token IS NULL OR p_token - v_token >= v_span THEN
            SET v_id = NULL;
        ELSEIF p_linger = 0 AND v_lingering THEN
            SET v_node = NULL; -- its process was told
        ELSEIF p_linger > 0 AND v_granted THEN
            CALL fencelock_v1_entomb(p_key, v_id, v_now, GREATEST(v_expires, v_now + p_linger), 1, p_reason, v_node);
            UPDATE fencelock_claim
                SET expires = GREATEST(v_now + p_linger, IF(v_lingering, v_expires, 0)), lingering = 1, news = NULL
                WHERE lock_key = p_key AND token = v_token;
        ELSE
            CALL fencelock_v1_entomb(p_key, v_id, v_now, v_expires, 1, p_reason, v_node);
            DELETE FROM fencelock_claim WHERE lock_key = p_key AND token = v_token;
            IF ROW_COUNT() <> 1 THEN
                CALL fencelock_v1_ended();
            END IF;
            SET v_touched = v_touched OR v_granted = 0;
            CALL fencelock_v1_settle(p_key, v_front, v_now, v_mark, p_node);
        END IF;
    END IF;
    COMMIT;
    IF v_touched THEN
        SELECT 'touched' AS what;
    END IF;
    IF v_id IS NULL THEN
        SELECT 'gone' AS what;
    ELSE
        SELECT 'left' AS what;
        IF v_node = p_node THEN
            SELECT 'broken' AS what, v_id AS id, p_reason AS note;
        END IF;
    END IF;
END$$

-- Gives a claim that is granted another ID, owner and note, and starts its lease again. A
-- repeat finds the claim.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_adopt(
    IN p_key VARBINARY(1024), IN p_id VARBINARY(256), IN p_before VARBINARY(256), IN p_ttl BIGINT,
    IN p_owner VARBINARY(256), IN p_note VARBINARY(1024), IN p_node BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_last, v_front, v_token, v_span, v_capacity, v_weight, v_expires BIGINT;
    DECLARE v_mark, v_granted_mark VARBINARY(512);
    DECLARE v_mark_id VARBINARY(256);
    DECLARE v_reason VARBINARY(1024) DEFAULT '';
    DECLARE v_touched, v_broken TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;

    CALL fencelock_v1_open(p_key, 0, v_now, v_last, v_front, v_mark, v_mark_id);
    IF v_last IS NOT NULL THEN
        CALL fencelock_v1_expire(p_key, v_front, v_now, v_mark, p_node, v_touched);
        SELECT token, span, capacity, weight, GREATEST(expires, v_now + p_ttl), mark
            INTO v_token, v_span, v_capacity, v_weight, v_expires, v_granted_mark
            FROM fencelock_claim
            WHERE lock_key = p_key AND token >= v_front AND id IN (p_id, p_before) AND granted = 1 AND lingering = 0
            FOR UPDATE;
        IF v_token IS NULL THEN
            SELECT broken, reason INTO v_broken, v_reason
                FROM fencelock_tombstone WHERE lock_key = p_key AND id = p_before AND expires > v_now;
        ELSE
            CALL fencelock_v1_entomb(p_key, p_before, v_now, v_now + p_ttl, 0, 'another process has adopted it', p_node);
            UPDATE fencelock_claim
                SET id = p_id, owner = p_owner, note = p_note, node = p_node, news = NULL, expires = v_expires
                WHERE lock_key = p_key AND token = v_token;
        END IF;
    END IF;
    COMMIT;
    IF v_touched THEN
        SELECT 'touched' AS what;
    END IF;
    IF v_token IS NULL THEN
        SELECT 'gone' AS what, v_broken AS granted, v_reason AS note;
    ELSE
        SELECT 'ticket' AS what, v_token AS token, v_span AS span, v_capacity AS capacity, v_weight AS weight,
            1 AS granted, v_expires - v_now AS remains, 0 AS ahead, v_granted_mark AS mark,
            p_owner AS owner, p_note AS note;
    END IF;
END$$

-- Makes the row that a transaction locks.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_prepare(IN p_id VARBINARY(256))
SQL SECURITY INVOKER
BEGIN
    DECLARE v_now BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    COMMIT;
    CALL fencelock_v1_clock(v_now);
    INSERT INTO fencelock_binding (id, since) VALUES (p_id, v_now) ON DUPLICATE KEY UPDATE since = v_now;
    COMMIT;
    SELECT 'renewed' AS what;
END$$

-- Ends the lease of a claim that is granted: from now on a transaction keeps it in line, which
-- has locked its row before.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_bind(IN p_key VARBINARY(1024), IN p_id VARBINARY(256))
SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_last, v_front, v_token BIGINT;
    DECLARE v_mark VARBINARY(512);
    DECLARE v_mark_id VARBINARY(256);
    DECLARE v_reason VARBINARY(1024) DEFAULT '';
    DECLARE v_free, v_rows INT;
    DECLARE v_broken TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;

    CALL fencelock_v1_open(p_key, 0, v_now, v_last, v_front, v_mark, v_mark_id);
    SELECT COUNT(*) INTO v_rows FROM fencelock_binding WHERE id = p_id;
    SELECT COUNT(*) INTO v_free FROM fencelock_binding WHERE id = p_id FOR UPDATE SKIP LOCKED;
    IF v_rows = 1 AND v_free = 0 THEN
        SELECT token INTO v_token FROM fencelock_claim
            WHERE lock_key = p_key AND token >= v_front AND id = p_id AND granted = 1 AND lingering = 0
                AND (expires > v_now OR expires = 0)
            FOR UPDATE;
        IF v_token IS NULL THEN
            SELECT broken, reason INTO v_broken, v_reason
                FROM fencelock_tombstone WHERE lock_key = p_key AND id = p_id AND expires > v_now;
        ELSE
            UPDATE fencelock_claim SET expires = 0, news = NULL WHERE lock_key = p_key AND token = v_token;
            SELECT COUNT(*) INTO v_rows FROM fencelock_claim WHERE lock_key = p_key AND token = v_token AND expires = 0;
            IF v_rows <> 1 THEN
                CALL fencelock_v1_ended();
            END IF;
        END IF;
    END IF;
    COMMIT;
    IF v_token IS NOT NULL THEN
        SELECT 'renewed' AS what;
    ELSEIF v_rows = 1 AND v_free = 0 THEN
        SELECT 'gone' AS what, v_broken AS granted, v_reason AS note;
    ELSE
        SELECT 'unbound' AS what;
    END IF;
END$$

-- Says whether a claim that waits, waits for its own transaction: over those before it, and what
-- else their transactions wait for. The ID of a transaction's claim begins with the 26 letters of
-- the transaction, and has 53.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_deadlock(IN p_key VARBINARY(1024), IN p_id VARBINARY(256))
SQL SECURITY INVOKER
BEGIN
    DECLARE v_met INT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION READ ONLY;
    WITH RECURSIVE before_it (id) AS (
        SELECT c.id FROM fencelock_claim me JOIN fencelock_claim c ON c.lock_key = me.lock_key AND c.token < me.token
            WHERE me.lock_key = p_key AND me.id = p_id
        UNION
        SELECT c.id FROM before_it b
            JOIN fencelock_claim w ON w.granted = 0 AND LENGTH(w.id) = 53 AND LENGTH(b.id) = 53
                AND SUBSTRING(w.id, 1, 26) = SUBSTRING(b.id, 1, 26)
            JOIN fencelock_claim c ON c.lock_key = w.lock_key AND c.token < w.token
    )
    SELECT COUNT(*) INTO v_met FROM before_it WHERE LENGTH(id) = 53 AND SUBSTRING(id, 1, 26) = SUBSTRING(p_id, 1, 26);
    COMMIT;
    SELECT IF(v_met > 0, 'deadlock', 'renewed') AS what;
END$$

-- Removes what has expired from a line, and grants what fits: also where rows were
-- deleted by hand.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_purge(IN p_key VARBINARY(1024), IN p_node BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_last, v_front BIGINT;
    DECLARE v_mark VARBINARY(512);
    DECLARE v_mark_id VARBINARY(256);
    DECLARE v_touched TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL fencelock_v1_open(p_key, 1, v_now, v_last, v_front, v_mark, v_mark_id);
    CALL fencelock_v1_expire(p_key, v_front, v_now, v_mark, p_node, v_touched);
    CALL fencelock_v1_settle(p_key, v_front, v_now, v_mark, p_node);
    COMMIT;
    IF v_touched THEN
        SELECT 'touched' AS what;
    END IF;
END$$

-- Renew, of many claims. Each begins with its lease in 16 hexadecimal digits; then the bytes
-- in its key and in its id, four decimal digits each; then these two. They are sorted by key
-- and token, so that two who renew the same do not wait for each other.
--
-- A claim is renewed only if it lives by a clock that is read when the row that keeps it is
-- locked; who removes it has to have that lock too, and looks at it again. The line is asked
-- first: a claim goes from there to its own row and never back, so it is not missed on the
-- way. No line is locked that does not keep the claim. The token of a claim in a row of its
-- own is read before that row is locked: rows are locked by their primary key only.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_renew(IN p_list LONGBLOB)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_at, v_end INT DEFAULT 1;
    DECLARE v_place INT DEFAULT 0;
    DECLARE v_now, v_token, v_ttl, v_key_bytes, v_id_bytes, v_expires BIGINT;
    DECLARE v_key VARBINARY(1024);
    DECLARE v_id VARBINARY(256);
    DECLARE v_reason VARBINARY(1024);
    DECLARE v_kept, v_broken TINYINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    SET v_end = LENGTH(p_list);
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION READ WRITE;
    WHILE v_at < v_end DO
        SET v_ttl = CAST(CONV(SUBSTRING(p_list, v_at, 16), 16, 10) AS SIGNED),
            v_key_bytes = CAST(SUBSTRING(p_list, v_at + 16, 4) AS SIGNED),
            v_id_bytes = CAST(SUBSTRING(p_list, v_at + 20, 4) AS SIGNED);
        SET v_key = SUBSTRING(p_list, v_at + 24, v_key_bytes),
            v_id = SUBSTRING(p_list, v_at + 24 + v_key_bytes, v_id_bytes),
            v_at = v_at + 24 + v_key_bytes + v_id_bytes,
            v_place = v_place + 1,
            v_kept = 0, v_token = NULL, v_expires = NULL;
        SELECT 1 INTO v_kept FROM fencelock_line WHERE lock_key = v_key AND id = v_id;
        IF v_kept THEN
            SELECT expires INTO v_expires FROM fencelock_line WHERE lock_key = v_key AND id = v_id FOR UPDATE;
            SET v_kept = v_expires IS NOT NULL;
        END IF;
        IF NOT v_kept THEN
            SELECT token INTO v_token FROM fencelock_claim WHERE id = v_id AND lock_key = v_key;
            SELECT expires INTO v_expires FROM fencelock_claim
                WHERE lock_key = v_key AND token = v_token AND id = v_id AND lingering = 0 FOR UPDATE;
        END IF;
        SET v_now = NULL;
        CALL fencelock_v1_clock(v_now);
        IF v_now IS NULL THEN
            CALL fencelock_v1_ended();
        END IF;
        IF v_expires > v_now THEN
            IF v_kept THEN
                UPDATE fencelock_line SET expires = GREATEST(v_expires, v_now + v_ttl) WHERE lock_key = v_key;
            ELSE
                UPDATE fencelock_claim SET expires = GREATEST(v_expires, v_now + v_ttl), news = NULL
                    WHERE lock_key = v_key AND token = v_token;
            END IF;
        ELSE
            SET v_broken = 0, v_reason = NULL;
            SELECT broken, reason INTO v_broken, v_reason
                FROM fencelock_tombstone WHERE lock_key = v_key AND id = v_id AND expires > v_now;
            SELECT 'lost' AS what, v_place AS token, v_broken AS granted, v_reason AS note;
        END IF;
    END WHILE;
    COMMIT;
    SELECT 'renewed' AS what;
END$$

-- Describes the grant of a claim, or its tombstone.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_standing(IN p_key VARBINARY(1024), IN p_id VARBINARY(256))
SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_expires BIGINT;
    DECLARE v_mark VARBINARY(512);
    DECLARE v_reason VARBINARY(1024);
    DECLARE v_granted, v_broken TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    COMMIT;
    CALL fencelock_v1_clock(v_now);
    SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    START TRANSACTION WITH CONSISTENT SNAPSHOT;
    SELECT granted, mark, expires INTO v_granted, v_mark, v_expires
        FROM fencelock_claim WHERE id = p_id AND lock_key = p_key AND lingering = 0;
    SELECT 1, mark, expires INTO v_granted, v_mark, v_expires FROM fencelock_line WHERE lock_key = p_key AND id = p_id;
    SELECT broken, reason INTO v_broken, v_reason
        FROM fencelock_tombstone WHERE lock_key = p_key AND id = p_id AND expires > v_now;
    COMMIT;
    IF v_granted THEN
        SELECT 'grant' AS what, p_id AS id, v_mark AS mark, v_expires - v_now AS remains;
    ELSE
        SELECT 'gone' AS what, v_broken AS granted, v_reason AS note;
    END IF;
END$$

-- Reads all of a line: a row per claim in order of arrival, or one without a token if nobody
-- is in line. The clock is read before the snapshot, so that a renewal is not missed by a
-- clock that has gone on. A claim that is bound to an open transaction is to be looked at again
-- in a tenth of a second.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_line(IN p_key VARBINARY(1024))
SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_locked BIGINT;
    DECLARE v_front BIGINT DEFAULT 0;
    DECLARE v_kept TINYINT DEFAULT 0;
    DECLARE v_bound VARBINARY(256);
    DECLARE v_ended INT DEFAULT 1;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    COMMIT;
    CALL fencelock_v1_clock(v_now);
    SELECT c.id INTO v_bound FROM fencelock_line line JOIN fencelock_claim c
        ON c.lock_key = line.lock_key AND c.token >= line.front AND c.expires = 0
        WHERE line.lock_key = p_key LIMIT 1;
    COMMIT;
    IF v_bound IS NOT NULL THEN
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        START TRANSACTION READ WRITE;
        SELECT last INTO v_locked FROM fencelock_line WHERE lock_key = p_key FOR UPDATE;
        SELECT COUNT(*) INTO v_ended FROM fencelock_binding WHERE id = v_bound FOR UPDATE SKIP LOCKED;
        COMMIT;
    END IF;
    SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    START TRANSACTION WITH CONSISTENT SNAPSHOT;
    SELECT front, id IS NOT NULL INTO v_front, v_kept FROM fencelock_line WHERE lock_key = p_key;
    IF v_kept THEN
        SELECT v_now AS now, lock_key, last, mark, last - span + 1 AS token, span, id, capacity, weight, 1 AS granted,
                0 AS lingering, expires, since, owner, note
            FROM fencelock_line WHERE lock_key = p_key;
    ELSE
        SELECT v_now AS now, p_key AS lock_key, line.last, line.mark, c.token, c.span, c.id, c.capacity, c.weight,
                c.granted, c.lingering, IF(c.expires = 0 AND c.id = v_bound AND v_ended = 0, v_now + 100000, c.expires) AS expires,
                c.since, c.owner, c.note
            FROM (SELECT 1) one
            LEFT JOIN fencelock_line line ON line.lock_key = p_key
            LEFT JOIN fencelock_claim c ON c.lock_key = p_key AND c.token >= v_front
            ORDER BY c.token;
    END IF;
    COMMIT;
END$$

-- Reads the first line with claims from p_from up to, and not including, p_to, if there is one.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_next(IN p_from VARBINARY(1100), IN p_to VARBINARY(1100))
SQL SECURITY INVOKER
BEGIN
    DECLARE v_key VARBINARY(1024);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    START TRANSACTION WITH CONSISTENT SNAPSHOT;
    SELECT lock_key INTO v_key FROM fencelock_claim
        WHERE lock_key >= p_from AND lock_key < p_to ORDER BY lock_key LIMIT 1;
    SELECT lock_key INTO v_key FROM fencelock_line
        WHERE lock_key >= p_from AND lock_key < COALESCE(v_key, p_to) AND id IS NOT NULL ORDER BY lock_key LIMIT 1;
    COMMIT;
    IF v_key IS NOT NULL THEN
        CALL fencelock_v1_line(v_key);
    END IF;
END$$

-- Finds what others did to the claims of one backend value: which they have granted, as
-- long as those have not been renewed since, and which were broken by operators.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_news(IN p_node BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_now BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    COMMIT;
    CALL fencelock_v1_clock(v_now);
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION READ ONLY;
    SELECT 'grant' AS what, c.lock_key, c.id, c.mark, c.expires - v_now AS remains, '' AS note
        FROM fencelock_claim c WHERE c.news = p_node
    UNION ALL
    SELECT 'broken', lock_key, id, NULL, 0, reason FROM fencelock_tombstone WHERE node = p_node AND broken = 1 AND expires > v_now;
    COMMIT;
END$$

-- Goes through the next lines, from where the last sweep of anybody has ended, and
-- forgets those that are idle: empty, without a mark, and with a counter that the clock
-- has overtaken a day ago. Claims whose programs have died are removed on the way.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_sweep(IN p_lines INT, IN p_node BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_day_ago, v_last, v_front BIGINT;
    DECLARE v_after, v_end, v_key VARBINARY(1024);
    DECLARE v_mark VARBINARY(512);
    DECLARE v_mark_id VARBINARY(256);
    DECLARE v_lines, v_claims INT;
    DECLARE v_given_up VARBINARY(256);
    DECLARE v_more, v_touched TINYINT DEFAULT 1;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    COMMIT;
    CALL fencelock_v1_clock(v_now);
    SET v_day_ago = v_now - 86400000000;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION READ WRITE;
    DELETE FROM fencelock_tombstone WHERE expires <= v_now LIMIT 1000;
    SELECT value INTO v_after FROM fencelock_meta WHERE name = 'swept';
    SELECT MAX(lock_key), COUNT(*) INTO v_end, v_lines FROM (SELECT lock_key FROM fencelock_line
        WHERE lock_key > COALESCE(v_after, '') ORDER BY lock_key LIMIT p_lines) upcoming;
    -- Behind the last line comes the first. Where all are few nothing is written, so the
    -- disk is not waited for.
    IF v_lines = p_lines THEN
        REPLACE INTO fencelock_meta (name, value) VALUES ('swept', v_end);
    ELSEIF v_after IS NOT NULL THEN
        DELETE FROM fencelock_meta WHERE name = 'swept';
    END IF;
    SET v_after = COALESCE(v_after, '');
    COMMIT;
    WHILE v_more DO
        SET v_key = NULL;
        SELECT line.lock_key INTO v_key FROM fencelock_line line
            LEFT JOIN fencelock_claim c ON c.lock_key = line.lock_key
            WHERE line.lock_key > v_after AND line.lock_key <= v_end
                AND (line.id IS NOT NULL AND line.expires <= v_now
                    OR c.expires <= v_now
                    OR c.token IS NULL AND line.last < v_day_ago AND line.mark IS NULL AND line.id IS NULL)
            ORDER BY line.lock_key LIMIT 1;
        SET v_more = v_key IS NOT NULL;
        IF v_more THEN
            SET v_after = v_key;
            CALL fencelock_v1_open(v_key, 0, v_now, v_last, v_front, v_mark, v_mark_id);
            CALL fencelock_v1_expire(v_key, v_front, v_now, v_mark, p_node, v_touched);
            SET v_claims = NULL;
            SELECT COUNT(*) INTO v_claims FROM fencelock_claim WHERE lock_key = v_key;
            IF v_claims = 0 THEN
                DELETE FROM fencelock_line WHERE lock_key = v_key AND last < v_day_ago AND mark IS NULL;
            END IF;
            COMMIT;
        END IF;
    END WHILE;
    -- Rows of claims that were given up before a transaction had them.
    SELECT MIN(b.id) INTO v_given_up FROM fencelock_binding b LEFT JOIN fencelock_claim c ON c.id = b.id
        WHERE b.since < v_day_ago AND c.id IS NULL;
    COMMIT;
    IF v_given_up IS NOT NULL THEN
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        START TRANSACTION READ WRITE;
        SELECT COUNT(*) INTO v_claims FROM fencelock_binding WHERE id = v_given_up FOR UPDATE SKIP LOCKED;
        IF v_claims = 1 THEN
            DELETE FROM fencelock_binding WHERE id = v_given_up;
        END IF;
        COMMIT;
    END IF;
END$$

-- Adds to the history. p_entries is a JSON array of objects with a key in base64, a token, and
-- an entry as text. Of each of these keys, the last p_keep grants stay; of all keys, what was
-- written within the last p_age microseconds.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_record(
    IN p_entries LONGTEXT CHARACTER SET utf8mb4, IN p_keep BIGINT, IN p_age BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_now BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL fencelock_v1_clock(v_now);
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION READ WRITE;
    INSERT INTO fencelock_history (lock_key, token, written, entry)
        SELECT FROM_BASE64(e.k), e.token, v_now, e.entry
            FROM JSON_TABLE(p_entries, '$[*]' COLUMNS (
                k VARCHAR(2048) PATH '$.key', token BIGINT PATH '$.token',
                entry MEDIUMTEXT CHARACTER SET utf8mb4 PATH '$.entry')) AS e
            ORDER BY 1, 2
        ON DUPLICATE KEY UPDATE written = VALUES(written),
            entry = JSON_MERGE_PATCH(fencelock_history.entry, VALUES(entry));
    DELETE h FROM fencelock_history AS h JOIN (
        SELECT o.lock_key, o.token, ROW_NUMBER() OVER (PARTITION BY o.lock_key ORDER BY o.token DESC) AS place
            FROM fencelock_history AS o JOIN (
                SELECT DISTINCT FROM_BASE64(j.k) AS k
                    FROM JSON_TABLE(p_entries, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$.key')) AS j) AS e
                ON o.lock_key = e.k) AS r
        ON h.lock_key = r.lock_key AND h.token = r.token
        WHERE r.place > p_keep;
    DELETE FROM fencelock_history WHERE written < v_now - p_age LIMIT 1000;
    COMMIT;
END$$

-- Reads what is known of the last grants of a key, the newest first.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_history(IN p_key VARBINARY(1024), IN p_n BIGINT)
SQL SECURITY INVOKER
BEGIN
    SELECT CAST(entry AS BINARY) AS note FROM fencelock_history
        WHERE lock_key = p_key ORDER BY token DESC LIMIT p_n;
END$$

-- Says which format the tables have. It is made last: where it is, all the others are.
CREATE PROCEDURE IF NOT EXISTS fencelock_v1_format()
SQL SECURITY INVOKER
BEGIN
    SELECT value AS note FROM fencelock_meta WHERE name = 'format';
END$$

DELIMITER ;
