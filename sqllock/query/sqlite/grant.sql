-- Grants the waiting claims of a line that fit: whose weight and the weights of all before
-- them are within their capacity. A claim of another process is flagged for that process to
-- find. Returns who was granted, in the columns of news.
--
-- ?1 key  ?2 wall clock  ?3 own node
UPDATE fencelock_claim
SET granted = CASE WHEN node = ?3 THEN 1 ELSE 2 END, since = ?2,
    mark = (SELECT mark FROM fencelock_line WHERE key = ?1)
WHERE key = ?1 AND granted = 0 AND token IN (
    SELECT token FROM (
        SELECT token, capacity, sum(weight) OVER (ORDER BY token) AS filled FROM fencelock_claim WHERE key = ?1)
    WHERE filled <= capacity)
RETURNING id, node, mark, clock, expires, until, ttl,
    capacity < 1048576 AND EXISTS (
        SELECT 1 FROM fencelock_claim AS o WHERE o.key = ?1 AND o.capacity <> fencelock_claim.capacity) AS mixed;
