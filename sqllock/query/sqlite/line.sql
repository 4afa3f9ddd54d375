-- Reads all of one line, in order of arrival, in one statement, so that it is one
-- moment that is seen. Always returns a row: one without a token if nobody is in line.
-- expires is on the wall clock.
--
-- ?5 key
SELECT ?3 AS now, k.key, l.last, l.mark,
       c.token, c.span, c.id, c.capacity, c.weight, c.granted > 0 AS granted, c.lingering,
       ?3 + CASE WHEN c.clock = ?1 THEN c.expires - ?2 ELSE min(c.ttl, c.until - ?3) END AS expires,
       c.since, c.owner, c.note
FROM (SELECT ?5 AS key) k
LEFT JOIN fencelock_line l ON l.key = k.key
LEFT JOIN fencelock_claim c ON c.key = k.key
ORDER BY c.token;
