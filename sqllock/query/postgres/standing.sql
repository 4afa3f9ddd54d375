-- Describes the grant of one claim, or its tombstone, and tells the largest token of its line. standby
-- is as in line.sql.
--
-- $1 key  $2 id
SELECT 'grant' AS what, id, mark,
       expires - (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS remains,
       false AS granted, NULL::bytea AS note, 0::bigint AS last, NULL AS standby
FROM fencelock_claims($1::bytea) WHERE id = $2::bytea AND granted > 0 AND NOT lingering
UNION ALL
SELECT 'gone', id, NULL, 0, broken, reason, 0, NULL FROM fencelock_tombstone
WHERE key = $1::bytea AND id = $2::bytea
      AND expires > (extract(epoch FROM statement_timestamp()) * 1000000)::bigint
UNION ALL
SELECT 'line', NULL, NULL, 0, false, NULL, (SELECT last FROM fencelock_line WHERE key = $1::bytea), CASE WHEN fencelock_now() > 0 AND
           current_setting('transaction_read_only') = 'on'
           THEN coalesce(host(inet_server_addr()) || ':' || inet_server_port(), 'a local server') END;
