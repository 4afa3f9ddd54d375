-- Finds where a sweep ends: the last of the next lines.
--
-- ?1 the key after which it begins  ?2 how many lines
SELECT max(key) FROM (SELECT key FROM fencelock_line WHERE key > ?1 ORDER BY key LIMIT ?2);
