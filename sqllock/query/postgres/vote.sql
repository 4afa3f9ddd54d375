-- Enters a line with a ballot. The arguments are those of fencelock_enter in the schema.
SELECT * FROM fencelock_enter($1::bytea, $2::bytea, $3::bigint, $4::bigint, $5::bigint,
    $6::boolean, $7::bigint, $8::bigint, $9::bytea, $10::bytea,
    $11::bigint, $12::boolean, $13::bigint, $14::bigint, $15::boolean, $16::text);
