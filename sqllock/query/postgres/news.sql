-- Finds what other processes did to the claims of one: which they have granted, as long
-- as those have not been renewed since, and which were broken by operators, with the reason
-- as a note. mixed says that two sizes of one semaphore are in line.
--
-- $1 node
SELECT 'grant' AS what, key, id, mark,
       expires - (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS remains,
       capacity < 1048576 AND EXISTS (
           SELECT FROM fencelock_claim AS o WHERE o.key = c.key AND o.capacity <> c.capacity) AS mixed,
       NULL::bytea AS note
FROM fencelock_claim AS c WHERE node = $1::bigint AND granted = 2
UNION ALL
SELECT 'broken', key, id, NULL, 0, false, reason FROM fencelock_tombstone WHERE node = $1::bigint AND broken;
