-- Reads all of one line, in order of arrival, in one statement, so that it is one
-- moment that is seen. Always returns a row: one without a token if nobody is in line.
--
-- ?1 key
SELECT k.key, l.last, l.mark,
       c.token, c.span, c.id, c.capacity, c.weight, c.granted > 0 AS granted, c.lingering,
       c.clock, c.expires, c.until, c.ttl, c.since, c.owner, c.note
FROM (SELECT ?1 AS key) k
LEFT JOIN fencelock_line l ON l.key = k.key
LEFT JOIN fencelock_claim c ON c.key = k.key
ORDER BY c.token;
