-- Reads one claim of a line, and how many are before it, counted up to 1024.
--
-- ?1 key  ?2 token
SELECT token, span, id, capacity, weight, granted, lingering, clock, expires, until,
       ttl, since, node, mark, owner, note,
       (SELECT count(*) FROM (SELECT 1 FROM fencelock_claim WHERE key = ?1 AND token < ?2 LIMIT 1024))
FROM fencelock_claim WHERE key = ?1 AND token = ?2;
