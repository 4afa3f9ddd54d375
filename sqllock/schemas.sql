-- Reads which schemas have tables of locks: here says which the search_path leads to; the others are listed also if
-- the role may not use them. note is the name, quoted; way is what leads this role to them.
SELECT note, here, tables,
       format('GRANT USAGE ON SCHEMA %s TO %I; GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %I; ALTER ROLE %I SET '
           'search_path = %s, %s', note, current_user, tables, current_user, current_user, current_setting('search_path'),
           note) AS way
FROM (
    SELECT quote_ident(n.nspname) AS note,
           coalesce(n.oid = own.relnamespace, false) AS here,
           string_agg(format('%I.%I', n.nspname, t.relname), ', ' ORDER BY t.relname) AS tables
    FROM pg_catalog.pg_class AS t
    JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace
    LEFT JOIN pg_catalog.pg_class AS own ON own.oid = to_regclass('fencelock_meta')
    WHERE t.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND t.relname IN (
        lower('fencelock_meta'), lower('fencelock_swap'), lower('fencelock_lease'), lower('fencelock_history'),
        lower('fencelock_line'), lower('fencelock_claim'), lower('fencelock_tombstone'))
    GROUP BY n.nspname, n.oid, own.relnamespace
) AS sets
ORDER BY here DESC, note
