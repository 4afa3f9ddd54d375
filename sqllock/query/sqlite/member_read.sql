-- Reads what the file remembers of being a member of a quorum.
SELECT value AS note FROM fencelock_meta WHERE name = 'member';
