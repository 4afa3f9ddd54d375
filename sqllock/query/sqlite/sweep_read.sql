-- Reads how far the last sweep came. No arguments.
SELECT value FROM fencelock_meta WHERE name = 'swept';
