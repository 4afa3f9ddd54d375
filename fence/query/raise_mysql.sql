-- Raises the mark of a resource to a token, and never lowers it. It waits for
-- whoever has the row, and locks it.
INSERT INTO fencelock_marks (resource, token) VALUES (?, ?)
ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)
