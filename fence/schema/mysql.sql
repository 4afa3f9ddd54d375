-- The largest fencing token that each resource has seen. Rows are locked one by
-- one, so the engine must be InnoDB.
CREATE TABLE IF NOT EXISTS fencelock_marks (
	resource VARBINARY(1024) NOT NULL PRIMARY KEY,
	token    BIGINT          NOT NULL
) ENGINE = InnoDB;
