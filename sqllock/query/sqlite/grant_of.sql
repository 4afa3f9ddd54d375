-- Describes the grant of one claim, in the columns of news.
--
-- ?1 key  ?2 id
SELECT 0, key, id, mark, clock, expires, until, ttl FROM fencelock_claim
WHERE key = ?1 AND id = ?2 AND granted > 0 AND lingering = 0;
