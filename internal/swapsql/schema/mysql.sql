-- The tables of fencelock on MariaDB 10.6 or later and MySQL 8.0.29 or later, format 2. There are no
-- procedures and no triggers. Running this again changes nothing. "fencelock_" is the prefix of all
-- names; another one may be chosen.
--
-- A user of the locks needs
--   GRANT SELECT, INSERT, UPDATE, DELETE ON database.* TO user;
--
-- Times are in microseconds since 1970, by the clock of this server: FROM_UNIXTIME(expires / 1e6).
-- Keys, IDs and marks are bytes: CONVERT(lock_key USING utf8mb4).

CREATE TABLE IF NOT EXISTS fencelock_meta (
    name  VARCHAR(64) CHARACTER SET ascii NOT NULL PRIMARY KEY,
    value VARCHAR(64) CHARACTER SET ascii NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One row per key that is in use, was in use within about a day, or has a mark. A step reads the
-- row, and writes it if it still has the version that was read. A row grows and shrinks with each lock,
-- so its page is not merged with the next one whenever it is less than half full.
CREATE TABLE IF NOT EXISTS fencelock_swap (
    lock_key  VARBINARY(1024) NOT NULL PRIMARY KEY,
    version   BIGINT          NOT NULL,
    last      BIGINT          NOT NULL, -- the largest token drawn
    mark      VARBINARY(512)  NOT NULL, -- what the last finished holder left
    marked_by VARBINARY(256)  NOT NULL, -- the claim that wrote it
    holder    VARBINARY(256)  NOT NULL, -- the claim that found nobody in line; its lease is here
    expires   BIGINT          NOT NULL, -- the end of that lease
    renewals  BIGINT          NOT NULL,
    line      LONGTEXT CHARACTER SET ascii NOT NULL, -- who is in line, in order of arrival: JSON
    arrivals  LONGTEXT CHARACTER SET ascii NOT NULL, -- who has arrived since, behind those: a JSON object each
    came      BIGINT          NOT NULL, -- when the last one arrived
    open_until BIGINT         NOT NULL, -- until then others may arrive and wait
    capacity  BIGINT          NOT NULL,  -- of those
    news      VARCHAR(300) CHARACTER SET ascii NOT NULL -- what the last swaps have done to whom, for those who poll
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC COMMENT = 'MERGE_THRESHOLD=1';

-- The leases of claims that came behind others, from their first renewal on.
CREATE TABLE IF NOT EXISTS fencelock_lease (
    of_key VARBINARY(1024) NOT NULL,
    id       VARBINARY(256) NOT NULL,
    ending   BIGINT NOT NULL,
    renewals BIGINT NOT NULL,
    PRIMARY KEY (of_key, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- A transaction that holds a lock keeps the row of its claim here locked. Who looks does not wait for it.
CREATE TABLE IF NOT EXISTS fencelock_binding (
    n     BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    since BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The history: one row per grant. entry is what is known of it, a JSON object.
CREATE TABLE IF NOT EXISTS fencelock_history (
    lock_key VARBINARY(1024) NOT NULL,
    token    BIGINT NOT NULL,
    written  BIGINT NOT NULL,
    entry    LONGTEXT CHARACTER SET utf8mb4 NOT NULL,
    PRIMARY KEY (lock_key, token),
    KEY fencelock_history_age (written)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

INSERT INTO fencelock_meta (name, value) VALUES ('format', '3') ON DUPLICATE KEY UPDATE value = value;
