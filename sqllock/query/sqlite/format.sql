-- Reads the format of the tables. No arguments.
SELECT value FROM fencelock_meta WHERE name = 'format';
