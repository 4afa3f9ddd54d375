-- Ends a quarantine. The arguments are those of fencelock_initialise in the schema.
SELECT * FROM fencelock_initialise($1::bigint, $2::boolean, $3::text);
