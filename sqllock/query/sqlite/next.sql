-- Reads all of the next line that has claims, in one statement.
--
-- ?5 the least key  ?6 the key to stop before
--
-- Returns no row if there is none.
SELECT ?3 AS now, c.key, l.last, l.mark,
       c.token, c.span, c.id, c.capacity, c.weight, c.granted > 0 AS granted, c.lingering,
       ?3 + CASE WHEN c.clock = ?1 THEN c.expires - ?2 ELSE min(c.ttl, c.until - ?3) END AS expires,
       c.since, c.owner, c.note
FROM fencelock_claim c LEFT JOIN fencelock_line l ON l.key = c.key
WHERE c.key = (SELECT key FROM fencelock_claim WHERE key >= ?5 AND key < ?6 ORDER BY key LIMIT 1)
ORDER BY c.token;
