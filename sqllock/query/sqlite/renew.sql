-- Starts a lease again if the claim is in line and alive, and never shortens it.
-- Its process has heard of its grant, if it has one.
--
-- ?1 key  ?2 token  ?3 id  ?4 clock  ?5 now on that clock  ?6 expires  ?7 until  ?8 ttl  ?9 own node
UPDATE fencelock_claim
SET expires = max(expires, ?6), until = max(until, ?7), ttl = ?8, granted = min(granted, 1)
WHERE key = ?1 AND token = ?2 AND id = ?3
  AND lingering = 0 AND clock = ?4 AND expires > ?5 AND node = ?9;
