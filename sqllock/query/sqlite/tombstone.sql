-- Keeps an id from entering again. An earlier tombstone is only prolonged, and what an
-- operator wrote stays the reason.
--
-- ?5 key  ?6 id  ?9 how long
INSERT INTO fencelock_tombstone (key, id, clock, expires, until, broken, reason, node)
    VALUES (?5, ?6, ?1, ?2 + ?9, ?3 + ?9, 0, 'it has left', ?4)
    ON CONFLICT (key, id) DO UPDATE SET
        expires = CASE WHEN clock = excluded.clock THEN max(expires, excluded.expires) ELSE excluded.expires END,
        until = max(until, excluded.until),
        clock = excluded.clock,
        reason = CASE WHEN broken THEN reason ELSE excluded.reason END;
