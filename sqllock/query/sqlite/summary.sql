-- Sums up what a line remembers and those who are in it. Always returns one row.
--
-- ?1 key  ?2 id
--
-- Returns the largest token drawn, the mark and who wrote it; how many claims there are, Σ of
-- their weights, the least and the largest of their capacities; the token of the first, and
-- that of the claim with this id, or 0; and whether a claim is one that no step writes.
SELECT max(coalesce(l.last, 0), coalesce(max(c.token + c.span - 1), 0)), coalesce(l.mark, x''), coalesce(l.mark_id, ''),
       count(c.token), coalesce(sum(c.weight), 0), coalesce(min(c.capacity), 1048576), coalesce(max(c.capacity), 1),
       coalesce(min(c.token), 0), coalesce(max(CASE WHEN c.id = ?2 THEN c.token END), 0),
       coalesce(max(c.weight < 1 OR c.weight > c.capacity OR c.capacity > 1048576 OR c.token < 1
                    OR c.span NOT BETWEEN 1 AND 65535), 0)
FROM (SELECT 1)
LEFT JOIN fencelock_line AS l ON l.key = ?1
LEFT JOIN fencelock_claim AS c ON c.key = ?1;
