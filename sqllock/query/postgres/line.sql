-- Reads all of one line, in order of arrival, in one statement, so that it is one moment
-- that is seen. Always returns a row: one without a token if nobody is in line. The clock is
-- read before the line is: a claim that ends meanwhile is seen next time. A claim that is bound
-- to an open transaction is to be looked at again in a tenth of a second.
--
-- standby names the server if it takes no writes: it may not have heard of the latest steps. The
-- clock of fencelock_now is volatile, so poolers which send reads to standbys send this to the primary.
--
-- $1 key
SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS now,
       k.key, l.last, l.mark, c.token, c.span, c.id, c.capacity, c.weight,
       c.granted > 0 AS granted, c.lingering,
       CASE WHEN c.expires = 0 AND fencelock_is_bound(c.id) THEN fencelock_now() + 100000 ELSE c.expires END AS expires,
       c.since, c.owner, c.note,
       CASE WHEN fencelock_now() > 0 AND current_setting('transaction_read_only') = 'on'
           THEN coalesce(host(inet_server_addr()) || ':' || inet_server_port(), 'a local server') END AS standby
FROM (SELECT $1::bytea AS key) AS k
LEFT JOIN fencelock_line AS l ON l.key = k.key
LEFT JOIN LATERAL fencelock_claims(k.key) AS c ON true
ORDER BY c.token;
