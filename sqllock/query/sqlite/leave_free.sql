-- Takes a granted claim out of a line that nobody else is in: the whole of a
-- Leave when nobody waits.
--
-- ?5 key  ?6 id  ?7 mark  ?8 how long to linger  ?9 how long a tombstone stays
--
-- Changes one row if it did. If not, nothing has changed, and a transaction decides.
DELETE FROM fencelock_claim
WHERE key = ?5 AND token = (SELECT max(token) FROM fencelock_claim WHERE key = ?5)
  AND id = ?6 AND coalesce(length(?7), 0) = 0 AND ?8 = 0 AND ?9 = 0
  AND granted > 0 AND lingering = 0 AND clock = ?1 AND expires > ?2
  AND token = (SELECT min(token) FROM fencelock_claim WHERE key = ?5);
