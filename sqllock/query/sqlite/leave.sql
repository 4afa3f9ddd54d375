-- Takes a claim out of its line.
--
-- ?5 key  ?6 id  ?7 mark  ?8 how long to linger

SELECT 'gone' AS what, granted, note
FROM (SELECT coalesce(max(broken), 0) AS granted, coalesce(max(reason), '') AS note FROM fencelock_tombstone
      WHERE key = ?5 AND id = ?6 AND CASE WHEN clock = ?1 THEN expires > ?2 ELSE until > ?3 END)
WHERE NOT EXISTS (SELECT 1 FROM fencelock_claim WHERE key = ?5 AND id = ?6 AND lingering = 0)
  AND NOT EXISTS (SELECT 1 FROM fencelock_line WHERE key = ?5 AND mark_id = ?6);

-- if ?7
INSERT INTO fencelock_line (key, last, mark, mark_id)
    SELECT key, token + span - 1, ?7, id FROM fencelock_claim
    WHERE key = ?5 AND id = ?6 AND lingering = 0 AND granted > 0
    ON CONFLICT (key) DO UPDATE SET mark = excluded.mark, mark_id = excluded.mark_id;

-- if ?8
UPDATE fencelock_claim
SET lingering = 1, granted = min(granted, 1), expires = ?2 + ?8, until = ?3 + ?8, ttl = ?8
WHERE key = ?5 AND id = ?6 AND lingering = 0;

-- Somebody may be waiting for a claim that waits.
DELETE FROM fencelock_claim
WHERE key = ?5 AND token = (SELECT token FROM fencelock_claim WHERE key = ?5 AND id = ?6 AND lingering = 0)
RETURNING CASE WHEN granted > 0 THEN 'removed' ELSE 'touched' END AS what;
