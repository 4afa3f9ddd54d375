-- Starts a lease again for a repeated Enter, never shortening it. The caller has
-- seen in the same transaction that the claim lives.
--
-- ?1 key  ?2 token  ?3 expires  ?4 until  ?5 ttl  ?6 node
UPDATE fencelock_claim
SET expires = max(expires, ?3), until = max(until, ?4), ttl = ?5, node = ?6
WHERE key = ?1 AND token = ?2;
