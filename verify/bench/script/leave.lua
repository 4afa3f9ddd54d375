-- leave is the least that giving a lock back needs whose last token must be remembered.
--
-- KEYS  record, and two more that a line would need
-- ARGV  1 id    2 eight characters that name this call    3 seconds of the lease
-- It answers '+', or 'x' if the lock is no longer the caller's.
local call, sub = redis.call, string.sub
local clock = call('TIME')
local rec = call('GET', KEYS[1])
if rec and sub(rec, 1, 1) == 'C' and sub(rec, 18, 17 + #ARGV[1]) == ARGV[1] and clock[1] - sub(rec, 2, 11) < ARGV[3] + 0 then
  call('SET', KEYS[1], 'F' .. sub(rec, 2, 17) .. ARGV[2], 'PX', '86400000')
  return '+'
end
return 'x'
