-- Reads the first claim of a line, and how many are in it, counted up to 1024.
--
-- ?1 key
SELECT token, span, id, capacity, weight, granted, lingering, clock, expires, until,
       ttl, since, node, mark, owner, note,
       (SELECT count(*) FROM (SELECT 1 FROM fencelock_claim WHERE key = ?1 LIMIT 1024))
FROM fencelock_claim WHERE key = ?1 ORDER BY token LIMIT 1;
