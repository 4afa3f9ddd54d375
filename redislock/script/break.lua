-- break ends the claim whose span holds a token, and keeps its ID out until its lease
-- would have ended. A claim that is granted may linger. One that lingers already stays as it is,
-- unless it is to linger for longer, or not any more.
--
-- KEYS  see locks.lua
-- ARGV  1 token(19)    2 reason    3 eight characters that name this call
--       4 linger in µs, or 0: not, or -1: not even if it lingers already
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

return each(function(token, reason, name, linger)
  begin_write()
  rec = call('GET', R)
  local l = load()
  purge(l)

  if l.one and within(token, l.one.token, l.one.more) then
    lengthen(l)
    commit(l)
  end
  local id, claim
  if l.long then
    id, claim = find_token(l, token)
  end
  if not id then
    commit_purge(l)
    return remembers(l, name) and '+' or 'x'
  end

  local ends, details = tonumber(call('ZSCORE', Z, 'e' .. id) or damaged()), details_of(claim)
  local own, lingers = id, sub(id, 1, 1) == '~'
  if lingers then own = sub(id, 2) end
  linger = tonumber(linger)
  if lingers and linger == 0 then
    commit_purge(l)
    return '+'
  end
  if not is_granted(claim) then linger = 0 end
  if linger > 0 then
    local over = now + linger
    ends = math.max(ends, over)
    if lingers then over = ends end -- never sooner than was promised
    let_linger(l, own, claim, over)
  else
    remove(l, id, claim)
  end
  add_tombstone(l, own, ends, 'b' .. reason)
  remember(l, name)
  advance(l)
  commit(l)
  local _, _, channel = parse_details(details)
  publish(channel, 'b' .. own .. reason)
  if linger > 0 then tell_first(l) end
  return '+'
end)
