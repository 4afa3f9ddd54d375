-- Writes the mark of a granted claim that leaves. A mark never moves back.
--
-- ?5 key  ?6 id  ?7 mark
INSERT INTO fencelock_line (key, last, mark, mark_id)
    SELECT key, token + span - 1, ?7, id FROM fencelock_claim
    WHERE key = ?5 AND id = ?6 AND lingering = 0 AND granted > 0
    ON CONFLICT (key) DO UPDATE SET mark = max(coalesce(mark, x''), excluded.mark), mark_id = excluded.mark_id;
