-- Reads all of the next line that has claims, in one statement.
--
-- ?1 the least key  ?2 the key to stop before
--
-- Returns no row if there is none.
SELECT c.key, l.last, l.mark,
       c.token, c.span, c.id, c.capacity, c.weight, c.granted > 0 AS granted, c.lingering,
       c.clock, c.expires, c.until, c.ttl, c.since, c.owner, c.note
FROM fencelock_claim c LEFT JOIN fencelock_line l ON l.key = c.key
WHERE c.key = (SELECT key FROM fencelock_claim WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT 1)
ORDER BY c.token;
