-- read returns one line as it is, and writes nothing.
--
-- KEYS  record, claims, order: see line.lua
-- It answers {now in µs, record or '', members and scores of the order, fields
-- and values of the claims}.
local call = redis.call
local clock = call('TIME')
local rec = call('GET', KEYS[1]) or ''
local now = string.format('%.0f', clock[1] * 1000000 + clock[2])
if string.sub(rec, 2, 2) ~= 'L' then
  return {now, rec, {}, {}}
end
return {now, rec, call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'), call('HGETALL', KEYS[2])}
