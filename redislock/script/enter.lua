-- enter joins the line of a key, or finds the claim that is there already and
-- starts its lease again.
--
-- KEYS  see locks.lua
-- ARGV  1 more(5) ' ' lease(15) ' ' id ' ' details, as in a record that is held
--       2 ms that the record lasts: the lease, a day, and a second for the tokens of a span
--       3 '1' to be refused rather than wait
--   and, of a claim that waits with another lease,
--       4 lease(15) while it waits
-- It answers
--   'g' token(19) mark                          granted, alone in the line
--   {'g', token, left, span, mark}              granted
--   {'w', token, left, span, ahead, soonest, head, head left}   waiting
--   {'n', ahead, head, head left}               refused, nothing is left of it
--   'k' capacity                                the line has another capacity
--   'x' or 'xl' or 'xb' reason                  it has left, or was broken
--   'o'                                         a claim with another capacity or weight has the ID
-- where left, soonest and head left are µs from now, and head is the first claim
-- of the line as record.lua keeps it in C.
local width = 3
--include locks.lua

-- A free lock, in as few steps as can be: nobody is in line, or one claim that has expired. Few
-- numbers are formatted here: that is what Lua is slow at. A line with a mark, and tokens
-- that are a minute ahead of the clock, go through line.lua.
--
-- calls is as record.lua says. last is the largest token drawn, 0 without a record, and false or
-- nil where line.lua has to judge. A time whose seconds have not ten digits does not fit the record.
local stamp = clock[1] .. sub('00000' .. clock[2], -6)
for i = 1, locks do
  local calls, last = '--------------------------------', #clock[1] == 10 and 0
  R = KEYS[3 * i - 2]
  rec = try('GET', R)
  if type(rec) == 'table' then
    last = nil
  elseif rec then
    local state = sub(rec, 1, 6)
    calls, last = sub(rec, 8, 39), nil
    if sub(rec, 41, 48) ~= '000 0000' then
      last = nil
    elseif state == '1 idle' and #rec == 109
      or state == '1 held' and sub(rec, 118, 118) == '.' and sub(rec, 125, 125) == ' '
      and (num(sub(rec, 87, 102)) or FAR) + (num(sub(rec, 110, 117)) or FAR) * 1000000
        + (num(sub(rec, 119, 124)) or FAR) <= now then
      last = (num(sub(rec, 50, 68)) or FAR) + (num(sub(rec, 104, 108)) or FAR)
    end
  end
  if last and last < now + 59000000 then
    local first = (i - 1) * args
    local token, px = '000' .. stamp, ARGV[first + 2]
    if last >= now then
      -- Who had the lock last left it before the clock had overtaken the tokens of its span.
      token, px = fmt('%019d', last + 1), fmt('%d', px + 60000)
    end
    if not try('SET', R, '1 held ' .. calls .. ' 000 0000 ' .. token .. ' ' .. stamp .. ' ' .. stamp .. ' '
      .. ARGV[first + 1], 'PX', px).err then
      answers[i], done = 'g' .. token, done + 1
    end
  end
end
if done == locks then return answers[2] and answers or answers[1] end

--include each.lua

--include simple.lua

-- lease_end is when a lease that begins now ends.
local function lease_end(lease) return now + sub(lease, 1, 8) * 1000000 + sub(lease, 10, 15) end

-- enter_simple joins a simple line, behind all others.
local function enter_simple(text, no_wait, wait_lease)
  local length, at = string.match(text, '^(%d+):()', 23)
  local id, details = sub(text, 23, at + length - 1), sub(text, at + length + 1)
  local own, weight = string.match(details, '^(%d+) (%d+) ')
  local token, more = sub(rec, 50, 68) + 1, sub(text, 1, 5)
  if token < now then token = now end
  if n + 0 == 0 then capacity = own end
  local fits = total + weight <= own + 0
  local ends = lease_end(not fits and wait_lease or sub(text, 7, 21))
  if own ~= capacity or no_wait and not fits or ends > expires + 0 then return nil end
  local first = fits and '' or call('ZRANGE', Z, 0, 0)[1]
  local known = first and call('HMGET', C, 'e' .. id, 't' .. id, 'e' .. sub(first, 2))
  if not known or known[1] or known[2] then return nil end

  arrivals = arrivals + 1
  local claim = fmt('%019d %016d %s %016d %s 000 ', token, now, fits and 'granted' or 'waiting', arrivals, more)
  call('HSET', C, 'e' .. id, claim .. details)
  call('ZADD', Z, fmt('%d', arrivals - 9007199254740992), 'o' .. id, fmt('%d', ends), 'e' .. id)
  if ends < soonest + 0 then soonest = fmt('%016d', ends) end
  if fits then upto, held = arrivals, total + weight end
  total = total + weight
  save_simple(fmt('%019d', token + more), 1)
  if fits then return {'g', sub(claim, 1, 19), ends - now, more + 1, ''} end
  return {'w', sub(claim, 1, 19), ends - now, more + 1, n - 1, soonest - now,
    known[3] or '', (call('ZSCORE', Z, 'e' .. sub(first, 2)) or now) - now}
end

-- enter_any joins any other line. Its functions are made for the first lock that needs them.
local enter_any
local function make_enter_any()
--include line.lua
  return function(claim, no_wait, wait_lease)
    local id, details = split(sub(claim, 23))
    local ends = lease_end(sub(claim, 7, 21))
    local waits_until = wait_lease and lease_end(wait_lease) or ends
    local l = load()
    purge(l)
    local found = find_claim(l, id)
    if found then
      if not same_wish(l.one and l.one.details or details_of(found), details) then
        commit_purge(l)
        return 'o'
      end
      return renew_found(l, id, (l.one or is_granted(found)) and ends or waits_until, details)
    end
    local why = refusal(l, id, details, no_wait)
    if why then
      commit_purge(l)
      return why
    end
    local more = tonumber(sub(claim, 1, 5))
    return add_claim(l, {token = draw(l, more), since = now, more = more, expires = ends, waits_until = waits_until,
      id = id, details = details})
  end
end

return each(function(claim, _, no_wait, wait_lease)
  rec = call('GET', R)
  local answer = is_simple() and enter_simple(claim, no_wait == '1', wait_lease)
  if answer then return answer end
  enter_any = enter_any or make_enter_any()
  return enter_any(claim, no_wait == '1', wait_lease)
end)
