-- Forgets the lines of a stretch that are idle: empty, without a mark, and with a
-- counter that the clock has overtaken long ago.
--
-- ?1 after this key  ?2 up to this key  ?3 the wall clock a day ago
DELETE FROM fencelock_line
WHERE key > ?1 AND key <= ?2 AND last < ?3 AND mark IS NULL
  AND NOT EXISTS (SELECT 1 FROM fencelock_claim c WHERE c.key = fencelock_line.key);
