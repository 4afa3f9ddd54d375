-- ballot is enter for a member of a quorum: the claim gets the very token that its
-- client proposes, or is refused.
--
-- KEYS  record, claims, order, member of each lock
-- ARGV  1 to 3 as of enter
--       4 ballot(19)
--       5 skew in µs(16) ' ' how long a quarantine lasts in µs(16) ' ' '1' if a restart
--         forgets nothing, or '0' ' ' what the members of this quorum have agreed on
--       6 if there is one, the claim re-enters, and this is the clock of its client in µs
-- It answers as enter does, and
--   'b' last(19)      the ballot is not granted: one above last may be
--   'q' µs            no ballot is granted for that long
--   'c' µs ' ' ahead  nor for that long after a ballot within the skew of this clock, which is
--                     so many µs ahead of the one of this client
--   'm' text          this node has agreed on something else
local width = 4
--include locks.lua

-- A free lock, in as few steps as can be: nobody is in line, there is no mark, this is a
-- master with the history in which it was a member whose quarantine is over, and the ballot
-- is one of those that the clock allows. All else goes through line.lua. Tokens below 9·10^15
-- are numbers of Lua without loss.
local stamp, member, replication = clock[1] .. sub('00000' .. clock[2], -6), nil, nil
for i = 1, locks do
  local a, calls, floor = (i - 1) * args, '--------------------------------', #clock[1] == 10 and 0
  local claim, ballot, terms = ARGV[a + 1], ARGV[a + 4], ARGV[a + 5]
  R, M = KEYS[4 * i - 3], KEYS[4 * i]
  rec = try('GET', R)
  if type(rec) == 'table' then
    floor = nil
  elseif rec then
    calls, floor = sub(rec, 8, 39), nil
    if sub(rec, 1, 6) == '1 idle' and sub(rec, 41, 48) == '000 0000' and #rec == 109 then
      floor = (num(sub(rec, 50, 68)) or FAR) + (num(sub(rec, 104, 108)) or FAR)
    end
  end
  local skew, first = sub(terms, 1, 16), ballot + 0
  local last = first + sub(claim, 1, 5)
  if floor and first > floor and last < 9000000000000000 and last <= now + sub(claim, 7, 14) * 1000000
    and first > now - skew and first <= now + skew then
    member, replication = member or call('GET', M), replication or call('INFO', 'replication')
    if member and sub(member, 1, 2) == '1 ' and sub(member, 102) == sub(terms, 37)
      and (num(sub(member, 3, 18)) or now) + sub(terms, 18, 33) <= now
      and find(replication, 'role:master\r', 1, true)
      and find(replication, 'master_replid:' .. sub(member, 20, 59) .. '\r', 1, true)
      and not try('SET', R, '1 held ' .. calls .. ' 000 0000 ' .. ballot .. ' ' .. stamp .. ' ' .. stamp .. ' '
        .. claim, 'PX', ARGV[a + 2]).err then
      answers[i], done = 'g' .. ballot, done + 1
    end
  end
end
if done == locks then return answers[2] and answers or answers[1] end

--include each.lua

--include line.lua

--include member.lua

local function larger(a, b) return a > b and a or b end

-- ballot_refusal returns nil if the ballot may be granted, or what to answer. Tokens are
-- compared as text of one length: numbers of Lua end at 2^53.
local function ballot_refusal(l, last, ballot, skew, reenters)
  local ok
  if reenters then
    ok = ballot > l.last or last == l.last and l.n == 0
  else
    ok = ballot > larger(l.last, fmt('%019.0f', now - skew))
      and ballot <= larger(plus(l.last, 65535), fmt('%019.0f', now + skew))
  end
  if not ok then return 'b' .. larger(l.last, fmt('%019.0f', now)) end
end

return each(function(claim, _, no_wait, ballot, terms, reenters)
  rec = call('GET', R)
  local id, details = split(sub(claim, 23))
  local ends = now + sub(claim, 7, 14) * 1000000 + sub(claim, 16, 21)
  local more = tonumber(sub(claim, 1, 5))
  local l = load()
  purge(l)

  -- The claim comes first, then who is in its way, the ballot last.
  local found = find_claim(l, id)
  if found then
    if not same_wish(l.one and l.one.details or details_of(found), details) then
      commit_purge(l)
      return 'o'
    end
    return renew_found(l, id, ends)
  end
  local last = plus(ballot, more)
  if #last > 19 or last > '9223372036854775807' then
    error('FENCELOCK EXHAUSTED ' .. R, 0)
  end
  local why = refusal(l, id, details, no_wait)
    or membership(sub(terms, 18, 33), sub(terms, 1, 16), sub(terms, 35, 35), sub(terms, 37), reenters or ballot)
    or ballot_refusal(l, last, ballot, sub(terms, 1, 16), reenters)
  if why then
    commit_purge(l)
    return why
  end
  l.last = larger(l.last, last)
  return add_claim(l, {token = ballot, since = now, more = more, expires = ends, id = id, details = details})
end)
