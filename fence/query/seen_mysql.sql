-- Reads the mark. A plain SELECT would read the transaction's snapshot, which may
-- be older than the row that was just locked.
SELECT token FROM fencelock_marks WHERE resource = ? FOR UPDATE
