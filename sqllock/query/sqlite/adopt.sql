-- Carries leases of another clock over to ours, judged by the wall clock, and
-- never beyond one whole lease: the host was started again since, or a process
-- that cannot read the boot clock wrote them.
--
-- ?1 key  ?2 clock  ?3 now on that clock  ?4 wall clock
UPDATE fencelock_claim
SET clock = ?2,
    expires = ?3 + max(0, min(ttl, until - ?4)),
    until = ?4 + max(0, min(ttl, until - ?4))
WHERE key = ?1 AND clock <> ?2;
