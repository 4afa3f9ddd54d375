-- ballot is enter for a member of a quorum: the claim gets the very token that its
-- client proposes, or is refused.
--
-- KEYS  record, claims, order: see record.lua; member
-- ARGV  1 and 2 as of enter
--       3 ballot(19) last(19) and '1', or '0', as the third of enter: last is the
--         last token of the span
--       4 skew in µs(16), how long a quarantine lasts in µs(16), '1' if a restart forgets
--         nothing, or '0', and what the members of this quorum have agreed on, as text
--         with a space before it
--       5 if there is one, the claim re-enters
-- It answers as enter does, and
--   'b' last(19)      the ballot is not granted: one above last may be
--   'q' µs            no ballot is granted for that long
--   'm' text          this node has agreed on something else
--
-- The key member is '2 ' born(16) ' ' history(40) ' ' run(40) ' ' text: since when this
-- server knows that it is a member, and the ids of its replication and its run when it
-- noticed that; see member.lua. It does not expire.
local call, sub, find, fmt = redis.call, string.sub, string.find, string.format
local R, C, Z, M = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local rec = call('GET', R)
local ballots, terms = ARGV[3], ARGV[4]

-- A free lock, in as few steps as can be: nobody is in line, there is no mark, this is a
-- master with the history in which it was a member whose quarantine is over, and the ballot
-- is one of those that the clock allows. All else takes the long way. Tokens below 9·10^15 are
-- numbers of Lua without loss.
local ring, floor
if not rec then
  ring, floor = '--------------------------------', 0
elseif sub(rec, 1, 2) == '1F' then
  local flag = sub(rec, 51, 51)
  if flag == '+' and #rec == 82 then
    ring, floor = sub(rec, 19, 50), tonumber(sub(rec, 57, 75))
  elseif flag == '.' and #rec == 56 then
    ring, floor = sub(rec, 19, 50), sub(rec, 3, 18) + sub(rec, 52, 56)
  end
end
if floor then
  local ballot, last, skew = sub(ballots, 1, 19), sub(ballots, 20, 38), sub(terms, 1, 16)
  local n = ballot + 0
  if n > floor and last + 0 < 9000000000000000 and last + 0 <= now + sub(ARGV[1], 1, 8) * 1000000
    and n > now - skew and n <= now + skew and #clock[1] == 10 then
    local member, state = call('GET', M), call('INFO', 'replication')
    if member and sub(member, 1, 2) == '2 ' and sub(member, 101) == sub(terms, 34)
      and (tonumber(sub(member, 3, 18)) or now) + sub(terms, 17, 32) <= now
      and find(state, 'role:master\r', 1, true)
      and find(state, 'master_replid:' .. sub(member, 20, 59) .. '\r', 1, true) then
      local stamp = clock[1] .. sub('00000' .. clock[2], -6)
      call('SET', R, '1C' .. stamp .. ring .. '+' .. ARGV[1] .. last .. ballot .. stamp .. '00000000', 'PX', ARGV[2])
      return 'g' .. ballot
    end
  end
end

--include line.lua

--include member.lua

local id, card = split(sub(ARGV[1], 21))
local capacity, weight = sizes(card)
local expires = now + sub(ARGV[1], 1, 8) * 1000000 + sub(ARGV[1], 9, 14)
local l = load()
purge(l)

-- The claim comes first, then who is in its way, the ballot last.
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
if not why and l.n > 0 then
  if (largest(l) == RW) ~= (capacity == RW) then
    why = 'k'
  elseif sub(ballots, 39) == '1' and weight + l.total > capacity then
    local head, left = first(l)
    why = {'n', l.n, head, left}
  end
end
why = why or membership(sub(terms, 17, 32), sub(terms, 33, 33), sub(terms, 35))

-- Tokens are compared as text of one length: numbers of Lua end at 2^53.
local ballot, skew = sub(ballots, 1, 19), sub(terms, 1, 16)
local last = plus(ballot, sub(ARGV[1], 15, 19))
if #last > 19 or last > '9223372036854775807' then
  error('FENCELOCK EXHAUSTED ' .. R, 0)
end
local function larger(a, b) return a > b and a or b end
if not why then
  local ok
  if ARGV[5] then
    ok = ballot > l.last or last == l.last and l.n == 0
  else
    ok = ballot > larger(l.last, fmt('%019.0f', now - skew))
      and ballot <= larger(plus(l.last, 65535), fmt('%019.0f', now + skew))
  end
  if not ok then why = 'b' .. larger(l.last, fmt('%019.0f', now)) end
end
if why then
  flush(l)
  return why
end

l.last = larger(l.last, last)
if l.n == 0 and not l.long then
  l.one = {expires = expires, token = ballot, since = now, id = id, card = card}
  l.form = 'C'
  save(l)
  return 'g' .. ballot .. l.mark
end
lengthen(l)
join(l, id, ballot, expires, card, capacity, weight)
commit(l)
return standing(l, id)
