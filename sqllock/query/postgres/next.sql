-- Reads all of the next line that has claims, in one statement.
--
-- $1 the least key  $2 the key to stop before
--
-- Returns no row if there is none.
SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS now,
       c.key, l.last, l.mark, c.token, c.span, c.id, c.capacity, c.weight,
       c.granted > 0 AS granted, c.lingering,
       CASE WHEN c.expires = 0 AND fencelock_is_bound(c.id) THEN fencelock_now() + 100000 ELSE c.expires END AS expires,
       c.since, c.owner, c.note
FROM (SELECT least(
        (SELECT key FROM fencelock_claim WHERE key >= $1::bytea AND key < $2::bytea ORDER BY key LIMIT 1),
        (SELECT key FROM fencelock_line WHERE key >= $1::bytea AND key < $2::bytea AND id <> '' ORDER BY key LIMIT 1)) AS key) AS k
CROSS JOIN LATERAL fencelock_claims(k.key) AS c
LEFT JOIN fencelock_line AS l ON l.key = c.key
ORDER BY c.token;
