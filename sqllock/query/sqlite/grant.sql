-- Grants the waiting claims of a line that fit: whose weight and the weights of all before
-- them are within their capacity. A claim of another process is flagged for that process to
-- find.
--
-- ?5 key
UPDATE fencelock_claim
SET granted = CASE WHEN node = ?4 THEN 1 ELSE 2 END, since = ?3,
    mark = (SELECT mark FROM fencelock_line WHERE key = ?5)
WHERE key = ?5 AND granted = 0 AND token IN (
    SELECT token FROM (
        SELECT token, capacity, sum(CASE WHEN weight BETWEEN 1 AND 1048576 THEN weight ELSE 1048576 END) OVER (ORDER BY token)
            AS filled
        FROM fencelock_claim WHERE key = ?5)
    WHERE filled <= capacity)
RETURNING CASE WHEN node = ?4 THEN 'grant' ELSE 'stranger' END AS what, id, mark, expires - ?2 AS remains;
