-- Describes the grant of one claim, or its tombstone.
--
-- ?5 key  ?6 id
SELECT 'grant' AS what, id, mark,
       CASE WHEN clock = ?1 THEN expires - ?2 ELSE min(ttl, until - ?3) END AS remains,
       0 AS granted, '' AS note
FROM fencelock_claim
WHERE key = ?5 AND id = ?6 AND granted > 0 AND lingering = 0
UNION ALL
SELECT 'gone', id, NULL, 0, broken, reason FROM fencelock_tombstone
WHERE key = ?5 AND id = ?6
  AND CASE WHEN clock = ?1 THEN expires > ?2 ELSE until > ?3 END;
