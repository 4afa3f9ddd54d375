-- Keeps how far a sweep came, so that short-lived processes go on where others stopped.
--
-- ?1 a key, or null to begin again
INSERT INTO fencelock_meta (name, value) VALUES ('swept', ?1)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value;
