-- Reads what the file remembers of being a member of a quorum. No arguments.
SELECT value AS note FROM fencelock_meta WHERE name = 'member';
