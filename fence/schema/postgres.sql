-- The largest fencing token that each resource has seen.
CREATE TABLE IF NOT EXISTS fencelock_marks (
	resource bytea  NOT NULL PRIMARY KEY,
	token    bigint NOT NULL
) WITH (fillfactor = 50);
