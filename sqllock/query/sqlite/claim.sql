-- Reads the last claim of a line whose token is at most that one, and how many are before
-- it, counted up to 1024.
--
-- ?1 key  ?2 token
SELECT token, span, id, capacity, weight, granted > 0 AS granted, lingering, clock, expires, until,
       ttl, since, node, mark, owner, note,
       (SELECT count(*) FROM (SELECT 1 FROM fencelock_claim AS o WHERE o.key = c.key AND o.token < c.token LIMIT 1024)) AS ahead
FROM fencelock_claim AS c WHERE key = ?1 AND token <= ?2 ORDER BY token DESC LIMIT 1;
