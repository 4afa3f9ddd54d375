-- Takes a granted claim out of a line that nobody else is in: the whole of a
-- Leave when nobody waits.
--
-- ?5 key  ?6 id  ?7 token
--
-- Changes one row if it did. If not, nothing has changed, and a transaction decides.
DELETE FROM fencelock_claim
WHERE key = ?5 AND token = ?7 AND id = ?6
  AND granted > 0 AND lingering = 0 AND clock = ?1 AND expires > ?2
  AND NOT EXISTS (SELECT 1 FROM fencelock_claim WHERE key = ?5 AND token <> ?7);
