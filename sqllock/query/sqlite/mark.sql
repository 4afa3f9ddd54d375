-- Keeps the mark of a line, and who wrote it.
--
-- ?1 key  ?2 mark  ?3 id  ?4 the line's counter, should its row be missing
INSERT INTO fencelock_line (key, last, mark, mark_id) VALUES (?1, ?4, ?2, ?3)
    ON CONFLICT (key) DO UPDATE SET mark = excluded.mark, mark_id = excluded.mark_id;
