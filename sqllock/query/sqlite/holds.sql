-- Says that a claim is granted, for a Leave of a claim that waits.
--
-- ?5 key  ?6 id
SELECT 'holds' AS what FROM fencelock_claim WHERE key = ?5 AND id = ?6 AND lingering = 0 AND granted > 0;
