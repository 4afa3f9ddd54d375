-- Finds what other processes did to the claims of one: which they have granted, as
-- long as those have not been renewed since, and which were broken by operators.
-- A broken one has its reason in place of a mark. The last column says that two sizes of
-- one semaphore are in line.
--
-- ?1 node
SELECT 0, key, id, mark, clock, expires, until, ttl,
       capacity < 1048576 AND EXISTS (SELECT 1 FROM fencelock_claim AS o WHERE o.key = c.key AND o.capacity <> c.capacity)
FROM fencelock_claim AS c WHERE node = ?1 AND granted = 2
UNION ALL
SELECT 1, key, id, reason, 0, 0, 0, 0, 0 FROM fencelock_tombstone WHERE node = ?1 AND broken = 1;
