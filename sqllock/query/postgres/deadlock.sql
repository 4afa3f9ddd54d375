-- Says whether a claim that waits, waits for its own transaction: over those before it, and what
-- else their transactions wait for. The ID of a transaction's claim begins with the 26 letters of
-- the transaction, and has 53.
--
-- $1 key  $2 id
WITH RECURSIVE before (id) AS (
    SELECT c.id FROM fencelock_claim AS me JOIN fencelock_claim AS c ON c.key = me.key AND c.token < me.token
        WHERE me.key = $1::bytea AND me.id = $2::bytea
    UNION
    SELECT c.id FROM before AS b
        JOIN fencelock_claim AS w ON w.granted = 0 AND length(w.id) = 53 AND length(b.id) = 53
            AND substr(w.id, 1, 26) = substr(b.id, 1, 26)
        JOIN fencelock_claim AS c ON c.key = w.key AND c.token < w.token
)
SELECT CASE WHEN EXISTS (SELECT FROM before WHERE length(id) = 53 AND substr(id, 1, 26) = substr($2::bytea, 1, 26))
    THEN 'deadlock' ELSE 'renewed' END AS what;
