-- Finds what other processes did to the claims of one: which they have granted, as
-- long as those have not been renewed since, and which were broken by operators: granted is
-- true of these, and note is the reason. mixed says that two sizes of one semaphore are in
-- line.
--
-- ?1 node
SELECT 'grant' AS what, key, id, mark, clock, expires, until, ttl,
       capacity < 1048576 AND EXISTS (
           SELECT 1 FROM fencelock_claim AS o WHERE o.key = c.key AND o.capacity <> c.capacity) AS mixed,
       0 AS granted, '' AS note
FROM fencelock_claim AS c WHERE node = ?1 AND granted = 2
UNION ALL
SELECT 'broken', key, id, NULL, 0, 0, 0, 0, 0, 1, reason FROM fencelock_tombstone WHERE node = ?1 AND broken = 1;
