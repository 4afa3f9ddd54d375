-- pass is the least that a Leave needs if others wait: the next one gets a token and a lease,
-- and its process is told.
--
-- KEYS  record, line
-- ARGV  1 the claim, as in join    2 ms that a lease lasts
local call, sub = redis.call, string.sub
local rec = call('GET', KEYS[1])
if not rec or sub(rec, 17) ~= ARGV[1] then return '-' end
local next = call('LPOP', KEYS[2])
local clock = call('TIME')
local stamp = clock[1] .. sub('00000' .. clock[2], -6)
if sub(rec, 1, 16) + 64 >= stamp + 0 then stamp = string.format('%.0f', sub(rec, 1, 16) + 65) end
call('SET', KEYS[1], stamp .. (next or ''), 'PX', ARGV[2])
if next then call('PUBLISH', sub(next, 1, 16), sub(next, 17) .. stamp) end
return '+'
