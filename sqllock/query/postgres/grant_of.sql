-- Describes the grant of one claim, in the columns of news.
--
-- $1 key  $2 id
SELECT 0::bigint, key, id, mark, expires - (extract(epoch FROM statement_timestamp()) * 1000000)::bigint,
       capacity < 1048576 AND EXISTS (SELECT FROM fencelock_claim AS o WHERE o.key = c.key AND o.capacity <> c.capacity)
FROM fencelock_standing($1::bytea) AS c WHERE id = $2::bytea AND granted > 0 AND NOT lingering;
