-- The tables of fencelock on SQLite 3.37 or later, format 1.
-- Running this again changes nothing, also when several processes do it at once.
-- "fencelock_" is the prefix of all names; another one may be chosen.
--
-- Times are in microseconds. "clock" names the clock that "expires" counts on: a
-- number made from the boot of the host, or 0 for the wall clock. "until" is the
-- same instant on the wall clock, for those who do not share that clock.

CREATE TABLE IF NOT EXISTS fencelock_meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;

-- One row per key that is in use, was in use within about a day, or has a mark.
CREATE TABLE IF NOT EXISTS fencelock_line (
    key     BLOB    NOT NULL PRIMARY KEY,
    last    INTEGER NOT NULL,   -- the largest token drawn
    mark    BLOB,               -- what the last finished holder left, or null
    mark_id TEXT                -- the claim that wrote it
) STRICT, WITHOUT ROWID;

-- One row per claim. The order of tokens is the order of arrival.
CREATE TABLE IF NOT EXISTS fencelock_claim (
    key       BLOB    NOT NULL,
    token     INTEGER NOT NULL CHECK (token > 0),
    span      INTEGER NOT NULL CHECK (span BETWEEN 1 AND 65535),
    id        TEXT    NOT NULL,
    capacity  INTEGER NOT NULL CHECK (capacity BETWEEN 1 AND 1048576),
    weight    INTEGER NOT NULL CHECK (weight BETWEEN 1 AND capacity),
    granted   INTEGER NOT NULL,   -- 0 waits; 1 granted; 2 granted, and its process is still to be told
    lingering INTEGER NOT NULL,   -- 1: its holder left, the place stays taken
    clock     INTEGER NOT NULL,
    expires   INTEGER NOT NULL,
    until     INTEGER NOT NULL,
    ttl       INTEGER NOT NULL,
    since     INTEGER NOT NULL,   -- granted since, or waiting since; wall clock
    node      INTEGER NOT NULL,   -- the backend value that waits for it
    mark      BLOB,               -- the line's mark when it was granted
    owner     TEXT    NOT NULL,
    note      TEXT    NOT NULL,
    PRIMARY KEY (key, token)
) STRICT, WITHOUT ROWID;

-- What a process that waits has to be told.
CREATE INDEX IF NOT EXISTS fencelock_claim_news ON fencelock_claim (node) WHERE granted = 2;

-- Tombstones: claim IDs that may not enter before expires.
CREATE TABLE IF NOT EXISTS fencelock_tombstone (
    key     BLOB    NOT NULL,
    id      TEXT    NOT NULL,
    clock   INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    until   INTEGER NOT NULL,
    broken  INTEGER NOT NULL,   -- 1: an operator ended it
    reason  TEXT    NOT NULL,
    node    INTEGER NOT NULL,   -- the backend value that held it
    PRIMARY KEY (key, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS fencelock_tombstone_end ON fencelock_tombstone (until);
CREATE INDEX IF NOT EXISTS fencelock_tombstone_news ON fencelock_tombstone (node) WHERE broken = 1;

-- The history: one row per grant. entry is what is known of it, a JSON object: owner, note,
-- kind, permits, asked, granted, ended, end, reason, broken, broken_by, broken_for, lost.
CREATE TABLE IF NOT EXISTS fencelock_history (
    key     BLOB    NOT NULL,
    token   INTEGER NOT NULL,
    written INTEGER NOT NULL,   -- wall clock
    entry   TEXT    NOT NULL,
    PRIMARY KEY (key, token)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS fencelock_history_age ON fencelock_history (written);

-- The counter outlives the claim that drew from it.
CREATE TRIGGER IF NOT EXISTS fencelock_claim_drawn AFTER INSERT ON fencelock_claim
BEGIN
    INSERT INTO fencelock_line (key, last) VALUES (NEW.key, NEW.token + NEW.span - 1)
        ON CONFLICT (key) DO UPDATE SET last = excluded.last WHERE excluded.last > last;
END;

INSERT OR IGNORE INTO fencelock_meta (name, value) VALUES ('format', 1);
