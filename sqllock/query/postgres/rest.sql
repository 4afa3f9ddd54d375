-- Reads why an id rests, if it does.
--
-- $1 key  $2 id
SELECT broken, reason FROM fencelock_rest
WHERE key = $1::bytea AND id = $2::bytea AND expires > (extract(epoch FROM statement_timestamp()) * 1000000)::bigint;
