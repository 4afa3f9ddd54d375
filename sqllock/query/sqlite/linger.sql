-- Lets a claim that has left keep its place for a while.
--
-- ?1 key  ?2 token  ?3 expires  ?4 until  ?5 for how long
UPDATE fencelock_claim
SET lingering = 1, granted = min(granted, 1), expires = ?3, until = ?4, ttl = ?5
WHERE key = ?1 AND token = ?2;
