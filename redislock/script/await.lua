-- await says where a claim stands, and takes out of its line what has expired.
--
-- KEYS  record, claims, order, or the record alone: see record.lua
-- ARGV  1 id
-- It answers {'g', …}, {'w', …} or 'x…' as enter.lua does.
--
-- It begins with a write that does nothing. A replica refuses that: what it knows of
-- the lock may be old.
local call, sub, find, fmt = redis.call, string.sub, string.find, string.format
local R, C, Z = KEYS[1], KEYS[2], KEYS[3]
if Z then call('ZREM', Z, '') end
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local rec = call('GET', R)

--include line.lua

local l = load()
purge(l)
commit_purge(l)
if find_claim(l, ARGV[1]) then return standing(l, ARGV[1]) end
return tombstone(l, ARGV[1]) or 'x'
