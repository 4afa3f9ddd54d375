-- Finds what other processes did to the claims of this one: which they have granted, as
-- long as those have not been renewed since, and which were broken by operators, with the
-- reason as a note. mixed says that two sizes of one semaphore are in line.
SELECT 'grant' AS what, key, id, mark,
       CASE WHEN clock = ?1 THEN expires - ?2 ELSE min(ttl, until - ?3) END AS remains,
       capacity < 1048576 AND EXISTS (
           SELECT 1 FROM fencelock_claim AS o WHERE o.key = c.key AND o.capacity <> c.capacity) AS mixed,
       '' AS note
FROM fencelock_claim AS c WHERE node = ?4 AND granted = 2
UNION ALL
SELECT 'broken', key, id, NULL, 0, 0, reason FROM fencelock_tombstone WHERE node = ?4 AND broken = 1;
