-- Reads a line in order of arrival, as far as the caller goes.
--
-- ?1 key
SELECT token, id, capacity, weight, granted, node, clock, expires, until, ttl
FROM fencelock_claim WHERE key = ?1 ORDER BY token;
