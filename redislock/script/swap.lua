-- swap puts one claim in the place of another that has the lock and is alone in the line.
--
-- KEYS  record, claims, order, or the record alone: see record.lua
-- ARGV  1 id    2 eight characters that name this call
--       3 lease(14) span-1 (5) ';' id card of the other one, as in a record of form C
--       4 ms that the record lasts: the lease and a day
-- It answers
--   'g' token(19)   the other one is granted
--   'e'             the other one is in line: this call was carried out before
--   'r'             nothing was done
local call, sub = redis.call, string.sub
local R, C = KEYS[1], KEYS[2]
local clock = call('TIME')
local secs, micros = clock[1], clock[2]
local rec = call('GET', R)
local form = rec and sub(rec, 1, 2)

-- As leave and enter have it for a lock that nobody else wants: see there.
if form == '1C' and sub(rec, 72, 71 + #ARGV[1]) == ARGV[1] then
  local age = secs - sub(rec, 3, 12)
  if sub(rec, 51, 51) == '.' and age >= 0 and age < sub(rec, 52, 59) + 0 and #secs == 10
    and sub(rec, 3, 18) + sub(rec, 66, 70) < secs * 1000000 + micros then
    local stamp = secs .. sub('00000' .. micros, -6)
    call('SET', R, '1C' .. stamp .. sub(rec, 27, 50) .. ARGV[2] .. '.' .. ARGV[3], 'PX', ARGV[4])
    return 'g000' .. stamp
  end
  return 'r'
end

local length, at = string.match(ARGV[3], '^(%d+):()', 21)
local id = sub(ARGV[3], 21, at + length - 1)
if form == '1C' and sub(rec, 72, 71 + #id) == id or form == '1L' and C and call('HGET', C, 'e' .. id) then
  return 'e'
end
return 'r'
