-- Finds what other processes did to the claims of one: which they have granted, as long
-- as those have not been renewed since, and which were broken by operators. A broken one
-- has its reason in place of a mark.
--
-- $1 node
SELECT 0::bigint, key, id, mark, expires - (extract(epoch FROM statement_timestamp()) * 1000000)::bigint
FROM fencelock_claim WHERE node = $1::bigint AND granted = 2
UNION ALL
SELECT 1::bigint, key, id, reason, 0::bigint FROM fencelock_rest WHERE node = $1::bigint AND broken;
