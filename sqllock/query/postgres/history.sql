-- Reads what is known of the last grants of a key, the newest first.
--
-- $1 key, $2 how many
SELECT convert_to(entry::text, 'UTF8') AS note FROM fencelock_history
WHERE key = $1::bytea ORDER BY token DESC LIMIT $2::bigint;
