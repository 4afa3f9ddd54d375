-- Reads where a claim stands, and the first of its line if it waits.
--
-- ?5 key  ?6 id
SELECT 'ticket' AS what, token, span, capacity, weight, granted > 0 AS granted, expires - ?2 AS remains,
       (SELECT count(*) FROM (
           SELECT 1 FROM fencelock_claim AS o WHERE o.key = c.key AND o.token < c.token LIMIT 1024)) AS ahead,
       mark, since, owner, note
FROM fencelock_claim AS c WHERE key = ?5 AND id = ?6 AND lingering = 0
UNION ALL
SELECT 'head', token, span, capacity, weight, 0, expires - ?2, 0, NULL, since, owner, note
FROM fencelock_claim
WHERE key = ?5 AND token = (SELECT min(token) FROM fencelock_claim WHERE key = ?5)
  AND EXISTS (SELECT 1 FROM fencelock_claim WHERE key = ?5 AND id = ?6 AND granted = 0);
