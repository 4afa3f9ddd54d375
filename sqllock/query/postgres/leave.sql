-- Leaves a line. The arguments are those of fencelock_leave in the schema.
SELECT * FROM fencelock_leave($1::bytea, $2::bytea, $3::bytea, $4::bigint, $5::bigint, $6::bigint);
