-- Finds what other processes did to the claims of one: which they have granted, as long
-- as those have not been renewed since, and which were broken by operators. A broken one
-- has its reason in place of a mark. The last column says that two sizes of one semaphore
-- are in line.
--
-- $1 node
SELECT 0::bigint, key, id, mark, expires - (extract(epoch FROM statement_timestamp()) * 1000000)::bigint,
       capacity < 1048576 AND EXISTS (SELECT FROM fencelock_claim AS o WHERE o.key = c.key AND o.capacity <> c.capacity)
FROM fencelock_claim AS c WHERE node = $1::bigint AND granted = 2
UNION ALL
SELECT 1::bigint, key, id, reason, 0::bigint, false FROM fencelock_rest WHERE node = $1::bigint AND broken;
