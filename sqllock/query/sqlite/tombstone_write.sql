-- Keeps an id from entering again. An earlier tombstone is only prolonged, and what an
-- operator wrote stays the reason.
--
-- ?1 key  ?2 id  ?3 clock  ?4 expires  ?5 until  ?6 broken  ?7 reason  ?8 node
INSERT INTO fencelock_tombstone (key, id, clock, expires, until, broken, reason, node)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (key, id) DO UPDATE SET
        expires = CASE WHEN clock = excluded.clock THEN max(expires, excluded.expires) ELSE excluded.expires END,
        until = max(until, excluded.until),
        clock = excluded.clock,
        reason = CASE WHEN broken > excluded.broken THEN reason ELSE excluded.reason END,
        broken = max(broken, excluded.broken);
