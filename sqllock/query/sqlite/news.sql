-- Finds what other processes did to the claims of this one: which they have granted, as
-- long as those have not been renewed since, and which were broken by operators, with the
-- reason as a note.
SELECT 'grant' AS what, key, id, mark,
       CASE WHEN clock = ?1 THEN expires - ?2 ELSE min(ttl, until - ?3) END AS remains,
       '' AS note
FROM fencelock_claim WHERE node = ?4 AND granted = 2
UNION ALL
SELECT 'broken', key, id, NULL, 0, reason FROM fencelock_tombstone WHERE node = ?4 AND broken = 1;
