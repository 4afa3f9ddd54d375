-- Purges a line. The arguments are those of fencelock_tidy in the schema.
SELECT * FROM fencelock_tidy($1::bytea, $2::bigint);
