-- Begins a transaction: deletes tombstones that are over. A write takes SQLite's one
-- write lock before anything is read, so that what the transaction reads
-- stays true until it commits. A transaction that begins with a read may find at
-- its first write that another one was faster, and is lost then.
--
-- ?1 clock  ?2 now on that clock  ?3 wall clock
DELETE FROM fencelock_tombstone
WHERE until <= ?3 AND (clock <> ?1 OR expires <= ?2);
