-- Removes what has expired from a line whose claims are all on our clock.
--
-- ?1 key  ?2 now on our clock
DELETE FROM fencelock_claim WHERE key = ?1 AND expires <= ?2;
