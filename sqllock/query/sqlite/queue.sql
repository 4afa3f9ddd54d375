-- Reads a line for those who wait in it, in order of arrival. Since, owner and note
-- are read of the first claim only.
--
-- ?1 key
SELECT token, id, capacity, weight, granted, lingering, clock, expires, until, ttl,
       CASE WHEN first THEN since END, CASE WHEN first THEN owner END, CASE WHEN first THEN note END
FROM (SELECT *, token = (SELECT min(token) FROM fencelock_claim WHERE key = ?1) AS first
      FROM fencelock_claim WHERE key = ?1)
ORDER BY token;
