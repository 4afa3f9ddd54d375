-- renew starts the lease of a claim again. It makes no claim, and shortens no lease.
--
-- ARGV  1 id  2 lease
-- It answers '+', or 'x', 'xl', 'xa' or 'xb' reason if the claim is not in line.
return each(function(id, lease) return rules().renew(id, lease) end)
