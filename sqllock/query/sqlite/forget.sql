-- Keeps the last grants in the history of a key, and of all keys what is young enough.
--
-- ?5 key, ?6 how many, ?7 age
DELETE FROM fencelock_history WHERE key = ?5 AND token <= (
    SELECT token FROM fencelock_history WHERE key = ?5 ORDER BY token DESC LIMIT 1 OFFSET ?6);
DELETE FROM fencelock_history WHERE (key, token) IN (
    SELECT key, token FROM fencelock_history WHERE written < ?3 - ?7 LIMIT 1000);
