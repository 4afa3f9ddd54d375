-- Removes what has expired from a line, before a step looks at it.
--
-- ?5 key

-- Carries leases of another clock over to ours, judged by the wall clock, and
-- never beyond one whole lease: the host was started again since, or a process
-- that cannot read the boot clock wrote them.
UPDATE fencelock_claim
SET clock = ?1,
    expires = ?2 + max(0, min(ttl, until - ?3)),
    until = ?3 + max(0, min(ttl, until - ?3))
WHERE key = ?5 AND clock <> ?1;

DELETE FROM fencelock_claim WHERE key = ?5 AND expires <= ?2 RETURNING 'touched' AS what;
