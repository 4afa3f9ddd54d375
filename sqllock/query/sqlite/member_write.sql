-- Keeps since when the file is a member of a quorum.
--
-- ?5 '1 ' clock ' ' when it takes ballots, on that clock ' ' the same on the wall
--    clock ' ' what the members have agreed on
INSERT INTO fencelock_meta (name, value) VALUES ('member', ?5)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value;
