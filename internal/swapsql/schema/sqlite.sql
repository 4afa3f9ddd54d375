-- The tables of fencelock on SQLite 3.37 or later, format 2. There are no triggers.
-- Running this again changes nothing. "fencelock_" is the prefix of all names; another one may be chosen.
--
-- Times are in microseconds since 1970. Keys, IDs and marks are bytes: CAST(lock_key AS TEXT).
-- Where the host has a clock that nobody can set, times are counted on that: 'clock N', a number made from the
-- boot of the host, is what they are ahead of it. The first process of a boot writes it, by the wall clock.

CREATE TABLE IF NOT EXISTS fencelock_meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per key that is in use, was in use within about a day, or has a mark. A step reads the
-- row, and writes it if it still has the version that was read.
CREATE TABLE IF NOT EXISTS fencelock_swap (
    lock_key  BLOB    NOT NULL PRIMARY KEY,
    version   INTEGER NOT NULL,
    last      INTEGER NOT NULL,   -- the largest token drawn
    mark      BLOB    NOT NULL,   -- what the last finished holder left
    marked_by BLOB    NOT NULL,   -- the claim that wrote it
    holder    BLOB    NOT NULL,   -- the claim that found nobody in line; its lease is here
    expires   INTEGER NOT NULL,   -- the end of that lease
    renewals  INTEGER NOT NULL,
    line      TEXT    NOT NULL,   -- who is in line, in order of arrival: JSON
    arrivals  TEXT    NOT NULL,   -- who has arrived since, behind those: a JSON object each
    came      INTEGER NOT NULL,   -- when the row was last written
    open_until INTEGER NOT NULL,  -- until then others may arrive and wait
    capacity  INTEGER NOT NULL,    -- of those
    news      TEXT    NOT NULL -- what the last swaps have done to whom, for those who poll
) STRICT, WITHOUT ROWID;

-- The leases of claims that came behind others, from their first renewal on.
CREATE TABLE IF NOT EXISTS fencelock_lease (
    of_key   BLOB    NOT NULL,
    id       BLOB    NOT NULL,
    ending   INTEGER NOT NULL,
    renewals INTEGER NOT NULL,
    came     INTEGER NOT NULL,   -- when it was last made or renewed
    PRIMARY KEY (of_key, id)
) STRICT, WITHOUT ROWID;

-- The history: one row per grant. entry is what is known of it, a JSON object.
CREATE TABLE IF NOT EXISTS fencelock_history (
    lock_key BLOB    NOT NULL,
    token    INTEGER NOT NULL,
    written  INTEGER NOT NULL,
    entry    TEXT    NOT NULL,
    PRIMARY KEY (lock_key, token)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS fencelock_history_age ON fencelock_history (written);

INSERT OR IGNORE INTO fencelock_meta (name, value) VALUES ('format', '3');
