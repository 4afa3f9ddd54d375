-- Reads what a ballot is judged by: the largest token drawn, and how many claims are in line.
--
-- ?5 key
SELECT max(coalesce((SELECT last FROM fencelock_line WHERE key = ?5), 0), coalesce(max(token + span - 1), 0)) AS last,
       count(*) AS ahead
FROM fencelock_claim WHERE key = ?5;
