-- Puts a claim behind all others. A trigger raises the line's counter.
--
-- ?5 key  ?6 id  ?7 capacity  ?8 weight  ?9 ttl  ?11 span  ?13 owner  ?14 note
INSERT INTO fencelock_claim
    (key, token, span, id, capacity, weight, granted, lingering,
     clock, expires, until, ttl, since, node, mark, owner, note)
SELECT ?5, max(coalesce(last, 0) + 1, drawn + 1, ?3, 1), ?11, ?6, ?7, ?8,
       before + ?8 <= ?7, 0, ?1, ?2 + ?9, ?3 + ?9, ?9, ?3, ?4, CASE WHEN before + ?8 <= ?7 THEN mark END,
       ?13, ?14
FROM (SELECT coalesce(sum(weight), 0) AS before, coalesce(max(token + span - 1), 0) AS drawn
      FROM fencelock_claim WHERE key = ?5)
LEFT JOIN fencelock_line ON key = ?5;
