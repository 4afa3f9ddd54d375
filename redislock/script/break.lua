-- break ends the claim whose span holds a token, and lays its id to rest until
-- its lease would have ended.
--
-- KEYS  record, claims, order, or the record alone: see record.lua
-- ARGV  1 token(19)    2 reason    3 eight characters that name this call
-- It answers '+', or 'x' if there is no such claim.
--
-- It works when the server is out of memory, as leave.lua says.
local call, sub, find, fmt = redis.call, string.sub, string.find, string.format
local R, C, Z = KEYS[1], KEYS[2], KEYS[3]
local token = ARGV[1]
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local rec = call('GET', R)

--include line.lua

local l = load()
if Z then call('ZREM', Z, '') end
purge(l)

-- within reports whether the span of a claim holds the token.
local function within(from, card)
  local _, _, span = sizes(card)
  return from <= token and token <= plus(from, span - 1)
end

local one, id, ends, card = l.one, nil, nil, nil
if one and within(one.token, one.card) then
  id, ends, card = one.id, one.expires, one.card
  l.one = nil
  lengthen(l)
elseif l.long then
  -- Tokens rise along the line: halve it until the last that is not above.
  local low, high, claim = 0, l.n - 1, nil
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local member = call('ZRANGE', Z, middle, middle)[1]
    local text = member and call('HGET', C, 'e' .. sub(member, 2)) or damaged()
    if sub(text, 1, 19) <= token then
      id, claim, low = sub(member, 2), text, middle + 1
    else
      high = middle - 1
    end
  end
  card = claim and sub(claim, card_at(claim))
  if claim and within(sub(claim, 1, 19), card) then
    ends = tonumber(call('ZSCORE', Z, 'e' .. id) or damaged())
    remove(l, id, claim)
    if sub(id, 1, 1) == '~' then id = sub(id, 2) end
  end
end
if not ends then
  flush(l)
  return remembers(l, ARGV[3]) and '+' or 'x'
end

lay(l, id, ends, 'b' .. ARGV[2])
remember(l, ARGV[3])
advance(l)
commit(l)
local _, _, _, chan = sizes(card)
shout(chan, 'b' .. id .. ARGV[2])
return '+'
