-- look says where a claim stands, and takes out of its line what has expired.
--
-- KEYS  record, claims, order, or the record alone: see record.lua
-- ARGV  1 id
-- It answers {'g', …}, {'w', …} or 'x…' as enter.lua does.
--
-- It begins with a write that does nothing. A replica refuses that: what it knows of
-- the lock may be old.
local call, sub, find, fmt = redis.call, string.sub, string.find, string.format
local R, C, Z = KEYS[1], KEYS[2], KEYS[3]
local id = ARGV[1]
if Z then call('ZREM', Z, '') end
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local rec = call('GET', R)

--include line.lua

local l = load()
purge(l)
flush(l)
local one, claim = l.one, nil
if one then
  if one.id == id and not one.lingers then return standing(l, id) end
elseif l.long then
  claim = call('HGET', C, 'e' .. id)
  if claim then return standing(l, id, claim) end
end
return resting(l, id) or 'x'
