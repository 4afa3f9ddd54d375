-- Reads what is known of the last grants of a key, the newest first.
--
-- ?5 key, ?6 how many
SELECT entry AS note FROM fencelock_history WHERE key = ?5 ORDER BY token DESC LIMIT ?6;
