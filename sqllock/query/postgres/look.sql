-- Reads a line for those who wait in it, in order of arrival. The clock is read before
-- the line is: a claim that ends meanwhile is seen next time. Since, owner and note are
-- read of the first claim only.
--
-- $1 key
SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint,
       token, id, capacity, weight, granted, lingering, expires,
       CASE WHEN first THEN since END, CASE WHEN first THEN owner END, CASE WHEN first THEN note END
FROM (SELECT *, coalesce(token = (SELECT min(token) FROM fencelock_claim WHERE key = $1::bytea), true) AS first
      FROM fencelock_standing($1::bytea)) AS line
ORDER BY token;
