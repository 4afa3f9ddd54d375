-- Takes a granted claim out of a line that nobody else is in: the whole of a
-- Leave when nobody waits.
--
-- ?1 key  ?2 token  ?3 id  ?4 clock  ?5 now on that clock
--
-- Changes one row if it did. If not, nothing has changed, and a transaction decides.
DELETE FROM fencelock_claim
WHERE key = ?1 AND token = ?2 AND id = ?3
  AND granted > 0 AND lingering = 0 AND clock = ?4 AND expires > ?5
  AND NOT EXISTS (SELECT 1 FROM fencelock_claim WHERE key = ?1 AND token <> ?2);
