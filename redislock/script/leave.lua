-- leave takes a claim out of the line of a key.
--
-- KEYS  record, claims, order, or the record alone: see record.lua
-- ARGV  1 id    2 eight characters that name this call
--   and, unless it is a plain leave,
--       3 mark or ''    4 linger in µs, or 0    5 µs that a tombstone lasts, or 0
-- It answers '+', or 'x', 'xl', 'xb' reason if the claim is not in line.
--
-- It works when the server is out of memory: Redis refuses a script its first
-- write if that one may need memory, and asks nothing later. So the first write
-- here is always one that takes something away, if only nothing at all.
local call, sub, find, fmt = redis.call, string.sub, string.find, string.format
local R, C, Z = KEYS[1], KEYS[2], KEYS[3]
local id = ARGV[1]
local clock = call('TIME')
local rec = call('GET', R)

-- The claim is alone in the line, there is no mark, and it has more than the started second
-- of its lease left. The record stays for a day, and a minute for tokens of its span that
-- the clock has not overtaken.
if not ARGV[3] and rec and sub(rec, 126, 125 + #id) == id and sub(rec, 1, 6) == '1 held'
  and sub(rec, 41, 48) == '000 0000' then
  local age = clock[1] - sub(rec, 87, 96)
  if age >= 0 and age < sub(rec, 110, 117) + 0 and sub(rec, 50, 62) - clock[1] < 59 then
    if Z then call('ZREM', Z, '') end
    call('SET', R, '1 idle ' .. sub(rec, 16, 39) .. ARGV[2] .. sub(rec, 40, 109), 'PX', '86460000')
    return '+'
  end
end
local now = clock[1] * 1000000 + clock[2]

--include contended.lua

-- The first of the line leaves it to the next, who waits for all of it. What is held is
-- all, and the next holds nothing: so the first was the only one.
if n and not ARGV[3] and held == capacity then
  local two = call('ZRANGE', Z, 0, 1)
  if two[2] and two[1] == 'o' .. id then
    local next = 'e' .. sub(two[2], 2)
    local claim = call('HGET', C, next) or ''
    local arrival, own, weight, length, at = string.match(claim, '^waiting (%d+) %d+ 000 (%d+) (%d+) (%d+) %d+ ()', 38)
    if weight == capacity and own == capacity then
      call('ZREM', Z, 'o' .. id, 'e' .. id)
      call('HDEL', C, 'e' .. id)
      claim = sub(claim, 1, 20) .. fmt('%016d', now) .. ' granted' .. sub(claim, 45)
      call('HSET', C, next, claim, 'r' .. left % 64, ARGV[2])
      total, upto, left = total - capacity, arrival, left + 1
      save_contended(sub(rec, 50, 68), -1)
      local channel = sub(claim, at, at + length - 1)
      if channel ~= '' then redis.pcall('PUBLISH', channel, 'g0:' .. sub(next, 2)) end
      return '+'
    end
  end
end

--include line.lua

local mark, linger, tomb = ARGV[3] or '', tonumber(ARGV[4] or 0), tonumber(ARGV[5] or 0)
local l = load()
if Z then call('ZREM', Z, '') end
purge(l)

local claim = find_claim(l, id)
if not claim then
  local answer = tombstone(l, id) or 'x'
  if l.marker == id or remembers(l, ARGV[2]) then answer = '+' end
  if tomb > 0 then
    lengthen(l)
    add_tombstone(l, id, now + tomb, 'l')
    commit(l)
  else
    commit_purge(l)
  end
  return answer
end

if mark ~= '' and (l.one or is_granted(claim)) then
  l.mark, l.marker = mark, id
end
remember(l, ARGV[2])
if l.one and tomb == 0 then
  if linger > 0 then
    l.one.lingers, l.one.expires = true, now + linger
  else
    l.one, l.n = nil, 0
  end
  save(l)
  return '+'
end
if l.one then
  lengthen(l)
  commit(l)
  claim = call('HGET', C, 'e' .. id)
end
if linger > 0 then
  let_linger(l, id, claim, now + linger)
else
  remove(l, id, claim)
end
if tomb > 0 then
  add_tombstone(l, id, now + tomb, 'l')
end
advance(l)
commit(l)
if linger > 0 then
  -- The first who waits learns that the end has moved.
  local member = call('ZRANGEBYSCORE', Z, fmt('(%.0f', l.upto - FAR), '(0', 'LIMIT', 0, 1)[1]
  claim = member and call('HGET', C, 'e' .. sub(member, 2))
  if claim then
    local _, _, channel = parse_details(details_of(claim))
    publish(channel, 'l' .. sub(member, 2))
  end
end
return '+'
