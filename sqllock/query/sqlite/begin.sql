-- Begins a transaction: deletes tombstones that are over. A write takes SQLite's one
-- write lock before anything is read, so that what the transaction reads
-- stays true until it commits. A transaction that begins with a read may find at
-- its first write that another one was faster, and is lost then.
--
-- In all files: ?1 clock  ?2 now on that clock  ?3 wall clock  ?4 node of this process.
-- What a step is given follows from ?5 on. What the rows of an answer mean is at the head of
-- schema/mysql.sql, and "busy" has the columns of "head", too. Here there are three more:
-- "stranger" says that another process has news, "removed" that a granted claim was removed,
-- and "torn" that no step has written the rows.
DELETE FROM fencelock_tombstone
WHERE until <= ?3 AND (clock <> ?1 OR expires <= ?2);
