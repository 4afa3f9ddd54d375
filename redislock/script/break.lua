-- break ends the claim whose span holds a token, and keeps its ID out until its lease
-- would have ended.
--
-- KEYS  see locks.lua
-- ARGV  1 token(19)    2 reason    3 eight characters that name this call
-- It answers '+', or 'x' if there is no such claim.
--
-- It works when the server is out of memory: see begin_write.
local width = 3
--include locks.lua
--include each.lua

--include line.lua

-- within reports whether the span of a claim holds the token.
local function within(token, from, more)
  return from <= token and token <= plus(from, more)
end

-- find_token returns the id and the text of the claim of a line whose span holds the token.
-- Tokens rise along the line: halve it until the last that is not above.
local function find_token(l, token)
  local low, high, id, claim = 0, l.n - 1, nil, nil
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
  if claim and within(token, sub(claim, 1, 19), more_of(claim)) then return id, claim end
end

return each(function(token, reason, name)
  begin_write()
  rec = call('GET', R)
  local l = load()
  purge(l)

  local one, id, ends, details = l.one, nil, nil, nil
  if one and within(token, one.token, one.more) then
    id, ends, details = one.id, one.expires, one.details
    l.one = nil
    lengthen(l)
  elseif l.long then
    local claim
    id, claim = find_token(l, token)
    if id then
      ends, details = tonumber(call('ZSCORE', Z, 'e' .. id) or damaged()), details_of(claim)
      remove(l, id, claim)
      if sub(id, 1, 1) == '~' then id = sub(id, 2) end
    end
  end
  if not ends then
    commit_purge(l)
    return remembers(l, name) and '+' or 'x'
  end

  add_tombstone(l, id, ends, 'b' .. reason)
  remember(l, name)
  advance(l)
  commit(l)
  local _, _, channel = parse_details(details)
  publish(channel, 'b' .. id .. reason)
  return '+'
end)
