-- The largest fencing token that each resource has seen.
CREATE TABLE IF NOT EXISTS fencelock_marks (
	resource BLOB    NOT NULL PRIMARY KEY,
	token    INTEGER NOT NULL
) WITHOUT ROWID;
