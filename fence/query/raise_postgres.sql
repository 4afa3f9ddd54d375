-- Raises the mark of resource $1 to token $2, never lowers it, and answers it.
-- It waits for whoever has the row, and works on what that one committed.
INSERT INTO fencelock_marks AS m (resource, token) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET token = greatest(m.token, excluded.token)
RETURNING token
