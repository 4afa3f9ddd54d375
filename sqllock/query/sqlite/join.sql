-- Puts a claim behind all others. A trigger raises the line's counter.
--
-- ?1 key  ?2 token  ?3 id  ?4 span  ?5 capacity  ?6 weight  ?7 clock  ?8 expires
-- ?9 until  ?10 ttl  ?11 node  ?12 owner  ?13 note  ?14 granted  ?15 since  ?16 mark
INSERT INTO fencelock_claim
    (key, token, span, id, capacity, weight, granted, lingering,
     clock, expires, until, ttl, since, node, mark, owner, note)
VALUES (?1, ?2, ?4, ?3, ?5, ?6, ?14, 0, ?7, ?8, ?9, ?10, ?15, ?11, ?16, ?12, ?13);
