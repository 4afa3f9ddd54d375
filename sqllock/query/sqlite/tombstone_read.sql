-- Reads why an id may not enter any more, if that is so.
--
-- ?1 key  ?2 id  ?3 clock  ?4 now on that clock  ?5 wall clock
SELECT broken AS granted, reason AS note FROM fencelock_tombstone
WHERE key = ?1 AND id = ?2
  AND CASE WHEN clock = ?3 THEN expires > ?4 ELSE until > ?5 END;
