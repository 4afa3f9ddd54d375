-- Sums up what a line remembers and those who wait in it, without going through them.
-- Always returns one row.
--
-- ?1 key  ?2 clock  ?3 id
--
-- Returns the line's counter, its mark and who wrote that; the largest token as the
-- claims show it; the token of the waiting claim with this id; when the first of those
-- who wait ends; and whether one of them is on another clock.
SELECT l.last, l.mark, l.mark_id,
       (SELECT token + span - 1 FROM fencelock_claim WHERE key = ?1 ORDER BY token DESC LIMIT 1),
       (SELECT token FROM fencelock_claim WHERE key = ?1 AND id = ?3 AND granted = 0),
       (SELECT min(expires) FROM fencelock_claim WHERE key = ?1 AND clock = ?2 AND granted = 0),
       EXISTS (SELECT 1 FROM fencelock_claim WHERE key = ?1 AND clock < ?2 AND granted = 0)
           OR EXISTS (SELECT 1 FROM fencelock_claim WHERE key = ?1 AND clock > ?2 AND granted = 0)
FROM (SELECT 1) LEFT JOIN fencelock_line l ON l.key = ?1;
