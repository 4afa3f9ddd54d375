-- Renews leases. The arguments are those of fencelock_renew in the schema.
SELECT * FROM fencelock_renew($1::text, $2::text, $3::text, $4::text);
