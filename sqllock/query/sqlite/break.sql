-- Takes the claim whose span holds a token out of its line, and leaves a tombstone until its
-- lease would have ended. A claim that is granted may linger. One that lingers already stays as it
-- is, unless ?8 says otherwise.
--
-- ?5 key  ?6 token  ?7 reason  ?8 how long to linger, or 0, or -1: it does not linger any more

SELECT 'gone' AS what
WHERE NOT EXISTS (
    SELECT 1 FROM fencelock_claim
    WHERE key = ?5 AND token = (SELECT max(token) FROM fencelock_claim WHERE key = ?5 AND token <= ?6)
      AND ?6 - token < span);

SELECT 'left' AS what FROM fencelock_claim
WHERE key = ?5 AND token = (SELECT max(token) FROM fencelock_claim WHERE key = ?5 AND token <= ?6)
  AND lingering = 1 AND ?8 = 0;

INSERT INTO fencelock_tombstone (key, id, clock, expires, until, broken, reason, node)
    SELECT key, id, clock, iif(granted > 0, max(expires, ?2 + ?8), expires), iif(granted > 0, max(until, ?3 + ?8), until),
        1, ?7, node FROM fencelock_claim
    WHERE key = ?5 AND token = (SELECT max(token) FROM fencelock_claim WHERE key = ?5 AND token <= ?6)
    ON CONFLICT (key, id) DO UPDATE SET
        expires = CASE WHEN clock = excluded.clock THEN max(expires, excluded.expires) ELSE excluded.expires END,
        until = max(until, excluded.until), clock = excluded.clock,
        reason = excluded.reason, broken = 1, node = excluded.node
    RETURNING CASE WHEN node = ?4 THEN 'broken' ELSE 'stranger' END AS what, id, reason AS note;

UPDATE fencelock_claim
SET lingering = 1, granted = 1, -- never sooner than was promised
    expires = max(?2 + ?8, iif(lingering, expires, 0)), until = max(?3 + ?8, iif(lingering, until, 0)),
    ttl = max(?8, iif(lingering, ttl, 0))
WHERE key = ?5 AND token = (SELECT max(token) FROM fencelock_claim WHERE key = ?5 AND token <= ?6)
  AND granted > 0 AND ?8 > 0;

DELETE FROM fencelock_claim
WHERE key = ?5 AND token = (SELECT max(token) FROM fencelock_claim WHERE key = ?5 AND token <= ?6)
  AND (granted = 0 OR ?8 <= 0)
RETURNING CASE WHEN granted > 0 THEN 'removed' ELSE 'touched' END AS what;
