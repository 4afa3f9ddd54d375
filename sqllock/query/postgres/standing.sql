-- Describes the grant of one claim, or its tombstone.
--
-- $1 key  $2 id
SELECT 'grant' AS what, id, mark,
       expires - (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS remains,
       capacity < 1048576 AND EXISTS (
           SELECT FROM fencelock_claim AS o WHERE o.key = c.key AND o.capacity <> c.capacity) AS mixed,
       false AS granted, NULL::bytea AS note
FROM fencelock_claims($1::bytea) AS c WHERE id = $2::bytea AND granted > 0 AND NOT lingering
UNION ALL
SELECT 'gone', id, NULL, 0, false, broken, reason FROM fencelock_tombstone
WHERE key = $1::bytea AND id = $2::bytea
      AND expires > (extract(epoch FROM statement_timestamp()) * 1000000)::bigint;
