-- Does what renew.sql does for a claim that is on the clock of another boot, or has entered
-- anew under the same ID. Or it says that the claim is gone, and why.
--
-- ?5 key  ?6 id  ?8 ttl  ?9 detached: the claim may have entered through another backend

UPDATE fencelock_claim
SET clock = ?1,
    expires = max(?2 + ?8, CASE WHEN clock = ?1 THEN expires ELSE ?2 + min(ttl, until - ?3) END),
    until = max(until, ?3 + ?8), ttl = ?8, granted = min(granted, 1)
WHERE key = ?5 AND id = ?6 AND lingering = 0 AND (node = ?4 OR ?9)
  AND CASE WHEN clock = ?1 THEN expires > ?2 ELSE min(ttl, until - ?3) > 0 END
RETURNING 'renewed' AS what;

SELECT 'gone' AS what, coalesce(max(broken), 0) AS granted, coalesce(max(reason), '') AS note FROM fencelock_tombstone
WHERE key = ?5 AND id = ?6
  AND CASE WHEN clock = ?1 THEN expires > ?2 ELSE until > ?3 END;
