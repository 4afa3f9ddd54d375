-- enter joins the line of a key, or finds the claim that is there already and
-- starts its lease again.
--
-- KEYS  record, claims, order, or the record alone: see record.lua
-- ARGV  1 lease(14) span-1 (5) ';' id card, as in a record of form C
--       2 ms that the record lasts: the lease and a day
--       3 '1' to be refused rather than wait
-- It answers
--   'g' token(19) mark                          granted, alone in the line
--   {'g', token, left, span, mixed, mark}       granted
--   {'w', token, left, span, mixed, ahead, soonest, head, head left}   waiting
--   {'n', ahead, head, head left}               refused, nothing is left of it
--   'k'                                         another kind of lock
--   'x' or 'xl' or 'xb' reason                  laid to rest, broken
-- where left, soonest and head left are µs from now, and head is the first claim
-- of the line as record.lua keeps it.
local call, sub, find, fmt = redis.call, string.sub, string.find, string.format
local R, C, Z = KEYS[1], KEYS[2], KEYS[3]
local clock = call('TIME')
local secs, micros = clock[1], clock[2]
local now = secs * 1000000 + micros
local rec = call('GET', R)

-- A free lock, in as few steps as can be: nobody is in line, or one claim that
-- has expired. Few numbers are written here but the clock's own digits, for that is
-- what Lua is slow at. A line with a mark, and tokens that are a minute ahead of the
-- clock, take the long way.
local ring, last = '--------------------------------', 0
if rec then
  local form, flag = sub(rec, 1, 2), sub(rec, 51, 51)
  ring, last = sub(rec, 19, 50), nil
  if form == '1F' then
    if flag == '.' and #rec == 56 then
      last = sub(rec, 3, 18) + sub(rec, 52, 56)
    elseif flag == '+' and #rec == 82 then
      last = tonumber(sub(rec, 57, 75))
    end
  elseif form == '1C' and flag == '.' then
    local start = tonumber(sub(rec, 3, 18))
    if start and start + sub(rec, 52, 59) * 1000000 + sub(rec, 60, 65) <= now then
      last = start + sub(rec, 66, 70)
    end
  end
end
if last and #secs == 10 and last < now + 59000000 then
  local stamp = secs .. sub('00000' .. micros, -6)
  if last < now then
    call('SET', R, '1C' .. stamp .. ring .. '.' .. ARGV[1], 'PX', ARGV[2])
    return 'g000' .. stamp
  end
  -- Who had the lock last left it before the clock had overtaken the tokens of its span.
  local token = fmt('%019d', last + 1)
  call('SET', R, '1C' .. stamp .. ring .. '+' .. ARGV[1] .. fmt('%019d', last + 1 + sub(ARGV[1], 15, 19)) .. token .. stamp
    .. '00000000', 'PX', fmt('%d', ARGV[2] + 60000))
  return 'g' .. token
end

--include crowd.lua

-- The line is full, and this claim waits behind all others.
if n and ARGV[3] ~= '1' then
  local length, at = string.match(ARGV[1], '^(%d+):()', 21)
  local id, card = sub(ARGV[1], 21, at + length - 1), sub(ARGV[1], at + length)
  local own, weight = string.match(card, '^(%d+) (%d+) ')
  local expires = now + sub(ARGV[1], 1, 8) * 1000000 + sub(ARGV[1], 9, 14)
  local token, more = sub(rec, 3, 21) + 1, sub(ARGV[1], 15, 19)
  if token < now then token = now end
  if own == capacity and total + weight > own + 0 and expires <= keep + 0 then
    local first = call('ZRANGE', Z, 0, 0)[1]
    first = first and 'e' .. sub(first, 2)
    local known = call('HMGET', C, 'e' .. id, first or '')
    if first and not known[1] then
      arrivals = arrivals + 1
      local claim = fmt('%019d%016dw%016d000', token, now, arrivals)
      call('HSET', C, 'e' .. id, claim .. card)
      call('ZADD', Z, fmt('%d', arrivals - 9007199254740992), 'o' .. id, fmt('%d', expires), 'e' .. id)
      if expires < soonest + 0 then soonest = fmt('%016d', expires) end
      total = total + weight
      crowded(fmt('%019d', token + more), 1)
      return {'w', sub(claim, 1, 19), sub(ARGV[1], 1, 14), more + 1, 0, n + 0, soonest - now,
        known[2] or '', (call('ZSCORE', Z, first) or now) - now}
    end
  end
end

--include line.lua

local id, card = split(sub(ARGV[1], 21))
local capacity, weight = sizes(card)
local expires = now + sub(ARGV[1], 1, 8) * 1000000 + sub(ARGV[1], 9, 14)
local l = load()
purge(l)

local one = l.one
if one and one.id == id and not one.lingers then
  one.expires = math.max(one.expires, expires)
  save(l)
  return standing(l, id)
end
local claim = l.long and call('HGET', C, 'e' .. id)
if claim then
  expires = math.max(tonumber(call('ZSCORE', Z, 'e' .. id) or damaged()), expires)
  add(l, nil, 'e' .. id, expires)
  cover(l, expires)
  commit(l)
  return standing(l, id, claim)
end

local why = resting(l, id)
if one and one.id == id then why = 'xl' end
if why then
  flush(l)
  return why
end
if l.n > 0 then
  if (largest(l) == RW) ~= (capacity == RW) then
    flush(l)
    return 'k'
  end
  if ARGV[3] == '1' and weight + l.total > capacity then
    flush(l)
    local head, left = first(l)
    return {'n', l.n, head, left}
  end
end

local token = draw(l, sub(ARGV[1], 15, 19))
if l.n == 0 and not l.long then
  l.one = {expires = expires, token = token, since = now, id = id, card = card}
  l.form = 'C'
  save(l)
  return 'g' .. token .. l.mark
end
lengthen(l)
join(l, id, token, expires, card, capacity, weight)
commit(l)
return standing(l, id)
