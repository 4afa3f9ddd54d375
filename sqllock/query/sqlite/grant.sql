-- Grants the waiting claims of a stretch of a line. A claim of another process is
-- flagged for that process to find.
--
-- ?1 key  ?2 first token  ?3 last token  ?4 wall clock  ?5 own node  ?6 the line's mark
UPDATE fencelock_claim
SET granted = CASE WHEN node = ?5 THEN 1 ELSE 2 END, since = ?4, mark = ?6
WHERE key = ?1 AND token BETWEEN ?2 AND ?3 AND granted = 0;
