-- Opens a step. It forgets who has rested long enough, and being a write it takes
-- SQLite's one write lock before anything is read, so that what the step reads
-- stays true until it commits. A transaction that begins with a read may find at
-- its first write that another one was faster, and is lost then.
--
-- ?1 clock  ?2 now on that clock  ?3 wall clock
DELETE FROM fencelock_rest
WHERE until <= ?3 AND (clock <> ?1 OR expires <= ?2);
