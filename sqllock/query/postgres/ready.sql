-- Reads what database this is. It answers the version of the server, the format of the
-- tables, and whether the functions are there.
-- No arguments.
SELECT current_setting('server_version_num')::bigint,
       (SELECT value FROM fencelock_meta WHERE name = 'format'),
       to_regproc('fencelock_sweep') IS NOT NULL
