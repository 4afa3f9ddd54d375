-- Breaks a claim. The arguments are those of fencelock_break in the schema.
SELECT * FROM fencelock_break($1::bytea, $2::bigint, $3::bytea, $4::bigint);
