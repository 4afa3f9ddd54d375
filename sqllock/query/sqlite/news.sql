-- Finds what other processes did to the claims of one: which they have granted, as
-- long as those have not been renewed since, and which were broken by operators.
-- A broken one has its reason in place of a mark.
--
-- ?1 node
SELECT 0, key, id, mark, clock, expires, until, ttl FROM fencelock_claim WHERE node = ?1 AND granted = 2
UNION ALL
SELECT 1, key, id, reason, 0, 0, 0, 0 FROM fencelock_rest WHERE node = ?1 AND broken = 1;
