-- reserve lengthens the span of a claim that has the lock and is alone in the line.
--
-- KEYS  record, claims, order, or the record alone: see record.lua
-- ARGV  1 id
--       2 more(5) of the new span
--       3 ms that the record lasts: the lease and a day
-- It answers 1, or 0 if nothing was done.
local call, sub = redis.call, string.sub
local rec = call('GET', KEYS[1])

-- There is no mark, nobody has drawn a token since, and a call that arrives late shortens
-- nothing.
if rec and sub(rec, 1, 6) == '1 held' and sub(rec, 41, 48) == '000 0000' and sub(rec, 126, 125 + #ARGV[1]) == ARGV[1]
  and sub(rec, 104, 108) <= ARGV[2] then
  local clock = call('TIME')
  local age = clock[1] - sub(rec, 87, 96)
  if age >= 0 and age < sub(rec, 110, 117) + 0 and sub(rec, 50, 62) - clock[1] < 1 then
    call('SET', KEYS[1], sub(rec, 1, 103) .. ARGV[2] .. sub(rec, 109), 'PX', ARGV[3])
    return 1
  end
end
return 0
