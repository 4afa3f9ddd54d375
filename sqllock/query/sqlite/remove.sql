-- Takes a claim out of its line. Somebody may be waiting for a claim that waits.
--
-- ?5 key  ?6 id
DELETE FROM fencelock_claim
WHERE key = ?5 AND token = (SELECT token FROM fencelock_claim WHERE key = ?5 AND id = ?6 AND lingering = 0)
RETURNING CASE WHEN granted > 0 THEN 'removed' ELSE 'touched' END AS what;
