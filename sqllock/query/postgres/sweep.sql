-- Sweeps. The arguments are those of fencelock_sweep in the schema.
SELECT * FROM fencelock_sweep($1::integer, $2::bigint);
