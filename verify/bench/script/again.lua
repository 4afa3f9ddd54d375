-- again is the least that a process needs which has served as many grants as it may on
-- one claim: it gives the lock back and takes it again, with a larger token, in one request.
--
-- KEYS  record, and two more that a line would need
-- ARGV  1 what the record has of the claim, its id of 26 characters first
--       2 ms that the record lasts
-- It answers with the token, or with 'x' if somebody else holds the lock.
local call, sub = redis.call, string.sub
local clock = call('TIME')
local stamp = clock[1] .. sub('00000' .. clock[2], -6)
local rec = call('GET', KEYS[1])
if rec and (sub(rec, 18, 43) ~= sub(ARGV[1], 1, 26) or sub(rec, 2, 17) >= stamp) then return 'x' end
call('SET', KEYS[1], 'C' .. stamp .. ARGV[1], 'PX', ARGV[2])
return stamp
