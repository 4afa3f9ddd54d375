-- renew starts the lease of a claim again. It makes no claim, and shortens no lease.
--
-- ARGV  1 id  2 lease
-- It answers '+', 'n' and what is left of the notice that the claim is under, or what gone answers if it is not in line.
return each(function(id, lease) return rules().renew(id, lease) end)
