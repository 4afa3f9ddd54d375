-- Adds an entry to the history of a grant.
--
-- ?5 key, ?6 token, ?7 entry
INSERT INTO fencelock_history AS h (key, token, written, entry) VALUES (?5, ?6, ?3, ?7)
    ON CONFLICT (key, token) DO UPDATE SET written = excluded.written, entry = json_patch(h.entry, excluded.entry);
