-- Finds where a sweep begins, which is where the last one has ended, and where it ends: note
-- is the last of the next lines, or empty behind the last of all.
--
-- ?1 how many lines
SELECT key, coalesce((SELECT max(key) FROM (
           SELECT key FROM fencelock_line AS l WHERE l.key > swept.key ORDER BY key LIMIT ?1)), x'') AS note
FROM (SELECT coalesce((SELECT value FROM fencelock_meta WHERE name = 'swept'), x'00') AS key) AS swept;
