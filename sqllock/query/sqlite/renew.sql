-- Starts a lease again if the claim is in line and alive, and never shortens it.
-- Its process has heard of its grant, if it has one. The first statement looks at the
-- clock itself, so that a lease that has ended is not brought back.
--
-- ?5 key  ?6 id  ?7 token  ?8 ttl
UPDATE fencelock_claim
SET expires = max(expires, ?2 + ?8), until = max(until, ?3 + ?8), ttl = ?8, granted = min(granted, 1)
WHERE key = ?5 AND token = ?7 AND id = ?6
  AND lingering = 0 AND clock = ?1 AND expires > ?2 AND node = ?4;
