-- Gives a claim that is granted another ID, owner and note, and starts its lease again. A
-- repeat finds the claim. Or it says that no such claim is granted, and why.
--
-- ?5 key  ?6 id  ?7 id before  ?8 ttl  ?9 owner  ?10 note

INSERT INTO fencelock_tombstone (key, id, clock, expires, until, broken, reason, node)
    SELECT key, id, ?1, ?2 + ?8, ?3 + ?8, 0, 'another process has adopted it', ?4 FROM fencelock_claim
    WHERE key = ?5 AND id = ?7 AND granted > 0 AND lingering = 0
    ON CONFLICT (key, id) DO UPDATE SET
        expires = excluded.expires, until = excluded.until, clock = excluded.clock, reason = excluded.reason;

UPDATE fencelock_claim
SET id = ?6, owner = ?9, note = ?10, node = ?4, ttl = ?8, granted = 1,
    expires = max(expires, ?2 + ?8), until = max(until, ?3 + ?8)
WHERE key = ?5 AND id IN (?6, ?7) AND granted > 0 AND lingering = 0
RETURNING 'again' AS what;

SELECT 'gone' AS what, coalesce(max(broken), 0) AS granted, coalesce(max(reason), '') AS note FROM fencelock_tombstone
WHERE key = ?5 AND id = ?7 AND CASE WHEN clock = ?1 THEN expires > ?2 ELSE until > ?3 END;
