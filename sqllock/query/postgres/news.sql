-- Finds what other processes did to the claims of one: which they have granted, as long
-- as those have not been renewed since, and which were broken by operators, with the reason
-- as a note. standby is as in line.sql.
--
-- $1 node
SELECT 'grant' AS what, key, id, mark,
       expires - (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS remains,
       NULL::bytea AS note, NULL AS standby
FROM fencelock_claim WHERE node = $1::bigint AND granted = 2
UNION ALL
SELECT 'broken', key, id, NULL, 0, reason, NULL FROM fencelock_tombstone WHERE node = $1::bigint AND broken
UNION ALL
SELECT 'standby', NULL, NULL, NULL, 0, NULL, coalesce(host(inet_server_addr()) || ':' || inet_server_port(), 'a local server')
WHERE fencelock_now() > 0 AND current_setting('transaction_read_only') = 'on';
