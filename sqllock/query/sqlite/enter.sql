-- Starts the lease of a claim in line again, or says why the claim may not join. It says
-- nothing if the claim may join.
--
-- ?5 key  ?6 id  ?7 capacity  ?8 weight  ?9 ttl  ?10 does not wait  ?11 span

UPDATE fencelock_claim
SET expires = max(expires, ?2 + ?9), until = max(until, ?3 + ?9), ttl = ?9, node = ?4
WHERE key = ?5 AND id = ?6 AND lingering = 0 AND capacity = ?7 AND weight = ?8
RETURNING 'again' AS what;

-- The first row counts. A claim that lingers has left: a late repeat of its Enter must not
-- bring it back, nor stand in line a second time. The last token is where a counter can only
-- have been set by hand: 280 000 years from now.
SELECT what, granted, token, remains, since, owner, note, ahead, capacity FROM (
    SELECT 0 AS place, 'torn' AS what, 0 AS granted, 0 AS token, 0 AS remains, 0 AS since, '' AS owner, '' AS note, 0 AS ahead,
        0 AS capacity
    FROM fencelock_claim
    WHERE key = ?5 AND (weight < 1 OR weight > capacity OR capacity > 1048576 OR span NOT BETWEEN 1 AND 65535
        OR token NOT BETWEEN 1 AND 9223372036854710272 - span)
    UNION ALL
    SELECT 1, 'gone', broken, 0, 0, 0, '', reason, 0, 0 FROM fencelock_tombstone
    WHERE key = ?5 AND id = ?6 AND CASE WHEN clock = ?1 THEN expires > ?2 ELSE until > ?3 END
    UNION ALL
    SELECT 2, CASE WHEN lingering THEN 'gone' ELSE 'reused' END, 0, 0, 0, 0, '', 'it has left', 0, 0
    FROM fencelock_claim WHERE key = ?5 AND id = ?6
    UNION ALL
    SELECT 3, 'kind', 0, 0, 0, 0, '', '', 0, capacity FROM fencelock_claim
    WHERE key = ?5 AND token = (SELECT min(token) FROM fencelock_claim WHERE key = ?5) AND capacity <> ?7
    UNION ALL
    SELECT 4, 'busy', 0, token, expires - ?2, since, owner, note,
        (SELECT count(*) FROM (SELECT 1 FROM fencelock_claim WHERE key = ?5 LIMIT 1024)), 0
    FROM fencelock_claim
    WHERE ?10 AND key = ?5 AND token = (SELECT min(token) FROM fencelock_claim WHERE key = ?5)
      AND (SELECT sum(weight) FROM fencelock_claim WHERE key = ?5) + ?8 > ?7
    UNION ALL
    SELECT 5, 'torn', 0, 0, 0, 0, '', '', 0, 0 FROM fencelock_line WHERE key = ?5 AND last > 9223372036854710272 - ?11)
ORDER BY place LIMIT 1;
