-- read returns one line as it is, and changes nothing.
--
-- KEYS  record, claims, order, or the record alone: see record.lua
-- It answers {now in µs, record or '', members and scores of the order, fields
-- and values of the claims}.
--
-- It begins with a write that does nothing. A replica refuses that: what it knows of
-- the lock may be old.
local call = redis.call
if KEYS[3] then call('ZREM', KEYS[3], '') end
local clock = call('TIME')
local rec = call('GET', KEYS[1]) or ''
local now = string.format('%.0f', clock[1] * 1000000 + clock[2])
if string.sub(rec, 2, 2) ~= 'L' then
  return {now, rec, {}, {}}
end
if not KEYS[3] then error('FENCELOCK MOVING', 0) end
return {now, rec, call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'), call('HGETALL', KEYS[2])}
