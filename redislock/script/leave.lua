-- leave takes a claim out of the line of a key.
--
-- KEYS  record, claims, order, or the record alone: see record.lua
-- ARGV  1 id    2 eight characters that name this call
--   and, unless it is a plain leave,
--       3 mark or ''    4 linger in µs, or 0    5 µs to lay the id to rest, or 0
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

-- The claim is alone in the line, leaves nothing behind, and has more than the
-- started second of its lease left. The record stays for a day, and a minute for
-- tokens of its span that the clock has not overtaken.
if not ARGV[3] and rec and sub(rec, 72, 71 + #id) == id and sub(rec, 1, 2) == '1C' then
  local age, flag, last = clock[1] - sub(rec, 3, 12), sub(rec, 51, 51), nil
  if age < 0 or age >= sub(rec, 52, 59) + 0 then
    last = nil
  elseif flag == '.' then
    last = '.' .. sub(rec, 66, 70)
  elseif flag == '+' and sub(rec, -8) == '00000000' and sub(rec, -62, -50) - clock[1] < 59 then
    last = '+00000' .. sub(rec, -62, -44) .. '0000000'
  end
  if last then
    if Z then call('ZREM', Z, '') end
    call('SET', R, '1F' .. sub(rec, 3, 18) .. sub(rec, 27, 50) .. ARGV[2] .. last, 'PX', '86460000')
    return '+'
  end
end
local now = clock[1] * 1000000 + clock[2]

--include crowd.lua

-- The first of the line leaves it to the next, who waits for all of it. What is held is
-- all, and the next holds nothing: so the first was the only one.
if n and not ARGV[3] and held == capacity then
  local two = call('ZRANGE', Z, 0, 1)
  if two[2] and two[1] == 'o' .. id then
    local next = 'e' .. sub(two[2], 2)
    local claim = call('HGET', C, next) or ''
    local digits, weight, chan, at = string.match(claim, '^w(%d+) (%d+) %d+ (%d+) %d+ ()', 36)
    if weight == capacity and sub(digits, 17) == '000' .. capacity then
      call('ZREM', Z, 'o' .. id, 'e' .. id)
      call('HDEL', C, 'e' .. id)
      call('HSET', C, next, sub(claim, 1, 19) .. fmt('%016d', now) .. 'g' .. sub(claim, 37), 'r' .. left % 64, ARGV[2])
      total, upto, left = total - capacity, sub(digits, 1, 16), left + 1
      crowded(sub(rec, 3, 21), -1)
      chan = sub(claim, at, at + chan - 1)
      if chan ~= '' then redis.pcall('PUBLISH', chan, 'g0:' .. sub(next, 2)) end
      return '+'
    end
  end
end

--include line.lua

local mark, linger, rest = ARGV[3] or '', tonumber(ARGV[4] or 0), tonumber(ARGV[5] or 0)
local l = load()
if Z then call('ZREM', Z, '') end
purge(l)

local one, claim = l.one, nil
if one and (one.id ~= id or one.lingers) then one = nil end
if l.long then claim = call('HGET', C, 'e' .. id) end

if not one and not claim then
  local answer = resting(l, id) or 'x'
  if l.marker == id or remembers(l, ARGV[2]) then answer = '+' end
  if rest > 0 then
    lengthen(l)
    lay(l, id, now + rest, 'l')
    commit(l)
  else
    flush(l)
  end
  return answer
end

if mark ~= '' and (one or is_granted(claim)) then
  l.mark, l.marker = mark, id
end
remember(l, ARGV[2])
if one and rest == 0 then
  if linger > 0 then
    one.lingers, one.expires = true, now + linger
  else
    l.one, l.form, l.n = nil, 'F', 0
  end
  save(l)
  return '+'
end
if one then
  lengthen(l)
  commit(l)
  claim = call('HGET', C, 'e' .. id)
end
if linger > 0 then
  haunt(l, id, claim, now + linger)
else
  remove(l, id, claim)
end
if rest > 0 then
  lay(l, id, now + rest, 'l')
end
advance(l)
commit(l)
if linger > 0 then
  -- The first who waits learns that the end has moved.
  local member = call('ZRANGEBYSCORE', Z, fmt('(%.0f', l.upto - FAR), '(0', 'LIMIT', 0, 1)[1]
  claim = member and call('HGET', C, 'e' .. sub(member, 2))
  if claim then
    local _, _, _, chan = sizes(sub(claim, card_at(claim)))
    shout(chan, 'l' .. sub(member, 2))
  end
end
return '+'
