-- Describes the grant of one claim, or its tombstone, in the columns of news.
--
-- ?1 key  ?2 id  ?3 clock  ?4 now on that clock  ?5 wall clock
SELECT 'grant' AS what, id, mark, clock, expires, until, ttl,
       capacity < 1048576 AND EXISTS (
           SELECT 1 FROM fencelock_claim AS o WHERE o.key = c.key AND o.capacity <> c.capacity) AS mixed,
       0 AS granted, '' AS note
FROM fencelock_claim AS c
WHERE key = ?1 AND id = ?2 AND granted > 0 AND lingering = 0
UNION ALL
SELECT 'gone', id, NULL, 0, 0, 0, 0, 0, broken, reason FROM fencelock_tombstone
WHERE key = ?1 AND id = ?2
  AND CASE WHEN clock = ?3 THEN expires > ?4 ELSE until > ?5 END;
