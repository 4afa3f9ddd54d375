-- Enters a line that nobody is in: the whole of an Enter when the lock is free.
--
-- ?1 key  ?2 token, which is the wall clock  ?3 id  ?4 span  ?5 capacity  ?6 weight
-- ?7 clock  ?8 expires  ?9 until  ?10 ttl  ?11 node  ?12 owner  ?13 note
--
-- Changes one row if it did, and a trigger raises the line's counter in the same
-- transaction. It changes nothing, and a transaction decides, unless the line is
-- empty, has no mark, its counter is below the clock, and the id has no tombstone.
INSERT INTO fencelock_claim
    (key, token, span, id, capacity, weight, granted, lingering,
     clock, expires, until, ttl, since, node, mark, owner, note)
SELECT ?1, ?2, ?4, ?3, ?5, ?6, 1, 0, ?7, ?8, ?9, ?10, ?2, ?11, NULL, ?12, ?13
WHERE NOT EXISTS (SELECT 1 FROM fencelock_claim WHERE key = ?1)
  AND NOT EXISTS (SELECT 1 FROM fencelock_line WHERE key = ?1 AND (last >= ?2 OR mark IS NOT NULL))
  AND NOT EXISTS (SELECT 1 FROM fencelock_tombstone WHERE key = ?1 AND id = ?3);
