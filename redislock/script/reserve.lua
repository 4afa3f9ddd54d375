-- reserve lengthens the span of a claim that has the lock and is alone in the line.
--
-- KEYS  see locks.lua
-- ARGV  1 id
--       2 more(5) of the new span
--       3 ms that the record lasts: the lease and a day
-- It answers 1, or 0 if nothing was done.
local width = 3
--include locks.lua
--include each.lua

-- There is no mark, nobody has drawn a token since, and a call that arrives late shortens
-- nothing.
return each(function(id, more, px)
  rec = call('GET', R)
  if rec and sub(rec, 1, 6) == '1 held' and sub(rec, 41, 48) == '000 0000' and sub(rec, 126, 125 + #id) == id
    and sub(rec, 104, 108) <= more then
    local age = clock[1] - sub(rec, 87, 96)
    if age >= 0 and age < sub(rec, 110, 117) + 0 and sub(rec, 50, 62) - clock[1] < 1 then
      call('SET', R, sub(rec, 1, 103) .. more .. sub(rec, 109), 'PX', px)
      return 1
    end
  end
  return 0
end)
