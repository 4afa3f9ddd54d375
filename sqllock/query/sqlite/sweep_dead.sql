-- Finds lines of a stretch in which a claim may have expired.
--
-- ?1 after this key  ?2 up to this key  ?3 clock  ?4 now on that clock  ?5 how many
SELECT DISTINCT key FROM fencelock_claim
WHERE key > ?1 AND key <= ?2 AND (clock <> ?3 OR expires <= ?4) LIMIT ?5;
