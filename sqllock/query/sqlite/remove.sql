-- Takes one claim out of its line.
--
-- ?1 key  ?2 token
DELETE FROM fencelock_claim WHERE key = ?1 AND token = ?2;
