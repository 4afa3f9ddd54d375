-- enter is the least that a grant with a lease and a token by the server's clock needs:
-- no line, no other kinds of lock, no call that is sent twice.
--
-- KEYS  record, and two more that a line would need
-- ARGV  1 what the record has of the claim, its id first    2 ms that the record lasts
-- It answers with the token, or with 'x' if somebody holds the lock or the clock is
-- behind the last token.
local call, sub = redis.call, string.sub
local clock = call('TIME')
local stamp = clock[1] .. sub('00000' .. clock[2], -6)
local rec = call('GET', KEYS[1])
if rec and (sub(rec, 1, 1) ~= 'F' or sub(rec, 2, 17) >= stamp) then return 'x' end
call('SET', KEYS[1], 'C' .. stamp .. ARGV[1], 'PX', ARGV[2])
return stamp
