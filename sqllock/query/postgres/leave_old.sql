-- Leaves a line by the function of an earlier version.
SELECT * FROM fencelock_leave($1::bytea, $2::bytea, $3::bytea, $4::bigint, $5::bigint, $6::bigint);
