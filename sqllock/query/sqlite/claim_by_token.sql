-- Reads the claim that has drawn a token, if its span reaches that far.
--
-- ?1 key  ?2 token
SELECT token, span, id, capacity, weight, granted, lingering, clock, expires, until,
       ttl, since, node, mark, owner, note, 0
FROM fencelock_claim WHERE key = ?1 AND token <= ?2 ORDER BY token DESC LIMIT 1;
