-- Keeps the place of a claim that leaves.
--
-- ?5 key  ?6 id  ?8 how long to linger
UPDATE fencelock_claim
SET lingering = 1, granted = min(granted, 1), expires = ?2 + ?8, until = ?3 + ?8, ttl = ?8
WHERE key = ?5 AND id = ?6 AND lingering = 0;
