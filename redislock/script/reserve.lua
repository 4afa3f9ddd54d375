-- reserve lengthens the span of a claim that has the lock and is alone in the line.
--
-- KEYS  record, claims, order, or the record alone: see record.lua
-- ARGV  1 id
--       2 span-1 (5) ';' id card of the claim with its new span, as in a record of form C
--       3 ms that the record lasts: the lease and a day
-- It answers 1, or 0 if nothing was done.
local call, sub = redis.call, string.sub
local rec = call('GET', KEYS[1])

-- As enter writes it for a lock that nobody else wants, and nobody has drawn a token since.
-- A call that arrives late shortens nothing.
if rec and sub(rec, 1, 2) == '1C' and sub(rec, 51, 51) == '.' and sub(rec, 72, 71 + #ARGV[1]) == ARGV[1]
  and sub(rec, 66, 70) <= sub(ARGV[2], 1, 5) then
  local secs = call('TIME')[1]
  local age = secs - sub(rec, 3, 12)
  if age >= 0 and age < sub(rec, 52, 59) + 0 then
    call('SET', KEYS[1], sub(rec, 1, 65) .. ARGV[2], 'PX', ARGV[3])
    return 1
  end
end
return 0
