-- Goes through the next lines, from where the last sweep of any process has ended. It
-- removes claims whose processes have died, in lines that nobody has asked for since, and
-- forgets lines that are idle: empty, without a mark, and with a counter that the clock has
-- overtaken a day ago. Until then a clock that was set back could draw a token again.
--
-- ?5 how many lines

INSERT INTO fencelock_meta (name, value)
    SELECT 'sweeping', coalesce((SELECT max(key) FROM (
        SELECT key FROM fencelock_line
        WHERE key > coalesce((SELECT value FROM fencelock_meta WHERE name = 'swept'), x'') ORDER BY key LIMIT ?5)), x'')
    WHERE true
    ON CONFLICT (name) DO UPDATE SET value = excluded.value;

UPDATE fencelock_claim
SET clock = ?1,
    expires = ?2 + max(0, min(ttl, until - ?3)),
    until = ?3 + max(0, min(ttl, until - ?3))
WHERE key > coalesce((SELECT value FROM fencelock_meta WHERE name = 'swept'), x'')
  AND key <= (SELECT value FROM fencelock_meta WHERE name = 'sweeping') AND clock <> ?1;

DELETE FROM fencelock_claim
WHERE key > coalesce((SELECT value FROM fencelock_meta WHERE name = 'swept'), x'')
  AND key <= (SELECT value FROM fencelock_meta WHERE name = 'sweeping') AND expires <= ?2
RETURNING 'touched' AS what, key;

DELETE FROM fencelock_line
WHERE key > coalesce((SELECT value FROM fencelock_meta WHERE name = 'swept'), x'')
  AND key <= (SELECT value FROM fencelock_meta WHERE name = 'sweeping')
  AND last < ?3 - 86400000000 AND mark IS NULL
  AND NOT EXISTS (SELECT 1 FROM fencelock_claim c WHERE c.key = fencelock_line.key);

INSERT INTO fencelock_meta (name, value) SELECT 'swept', value FROM fencelock_meta WHERE name = 'sweeping'
    ON CONFLICT (name) DO UPDATE SET value = excluded.value;
