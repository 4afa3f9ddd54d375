-- Enters a line that nobody is in: the whole of an Enter when the lock is free.
--
-- ?5 key  ?6 id  ?7 capacity  ?8 weight  ?9 ttl  ?10 span  ?11 owner  ?12 note
--
-- Changes one row if it did, and a trigger raises the line's counter in the same
-- transaction. It changes nothing, and a transaction decides, unless the line is
-- empty, has no mark, its counter is below the clock, and the id has no tombstone.
--
-- Its clock is read before SQLite lets it write, so it may be late. That is safe: the line is
-- empty, so no other lease is compared with it; its own lease only begins earlier; and a token
-- that is not above the counter changes nothing.
INSERT INTO fencelock_claim
    (key, token, span, id, capacity, weight, granted, lingering,
     clock, expires, until, ttl, since, node, mark, owner, note)
SELECT ?5, max(?3, 1), ?10, ?6, ?7, ?8, 1, 0, ?1, ?2 + ?9, ?3 + ?9, ?9, ?3, ?4, NULL, ?11, ?12
WHERE NOT EXISTS (SELECT 1 FROM fencelock_claim WHERE key = ?5)
  AND NOT EXISTS (SELECT 1 FROM fencelock_line WHERE key = ?5 AND (last >= ?3 OR mark IS NOT NULL))
  AND NOT EXISTS (SELECT 1 FROM fencelock_tombstone WHERE key = ?5 AND id = ?6);
