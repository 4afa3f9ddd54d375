-- Says why a claim cannot leave its line. It says nothing if the claim may leave.
--
-- ?5 key  ?6 id
SELECT 'gone' AS what, granted, note
FROM (SELECT coalesce(max(broken), 0) AS granted, coalesce(max(reason), '') AS note FROM fencelock_tombstone
      WHERE key = ?5 AND id = ?6 AND CASE WHEN clock = ?1 THEN expires > ?2 ELSE until > ?3 END)
WHERE NOT EXISTS (SELECT 1 FROM fencelock_claim WHERE key = ?5 AND id = ?6 AND lingering = 0)
  AND NOT EXISTS (SELECT 1 FROM fencelock_line WHERE key = ?5 AND mark_id = ?6);
