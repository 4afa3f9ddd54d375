-- Describes the grant of one claim, in the columns of news.
--
-- ?1 key  ?2 id
SELECT 0, key, id, mark, clock, expires, until, ttl,
       capacity < 1048576 AND EXISTS (SELECT 1 FROM fencelock_claim AS o WHERE o.key = c.key AND o.capacity <> c.capacity)
FROM fencelock_claim AS c
WHERE key = ?1 AND id = ?2 AND granted > 0 AND lingering = 0;
