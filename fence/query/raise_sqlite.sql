-- Raises the mark of resource ?1 to token ?2, never lowers it, and answers it.
-- It writes, and so takes the file's one write lock, also when nothing changes.
INSERT INTO fencelock_marks AS m (resource, token) VALUES (?, ?)
ON CONFLICT (resource) DO UPDATE SET token = max(m.token, excluded.token)
RETURNING token
