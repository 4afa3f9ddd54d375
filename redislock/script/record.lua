-- record.lua says how a lock is kept, and reads and writes its record. It is put where
-- other scripts say --include. locks.lua has set call, sub, find, fmt, FAR (2^53) and now
-- (server time in µs). The script has set rec (the record, or false), and each.lua the
-- lock's three keys:
--
--   R  the record, a string
--   C  the claims, a hash
--   Z  their order and their ends, a sorted set
--
-- The record is one line of text. Its first fields stand at the same place in every
-- record. Numbers with a width have leading zeros, and times are µs since 1970.
--
--     1  version, '1'
--     3  state: 'idle' without claims, 'held' by the one claim that is in the record,
--        'gone' when that claim has left and lingers, 'line' if the claims are in C and Z
--     8  calls(32): the names of the last four calls that took a claim out. A client that
--        repeats such a call because its answer was lost learns that it was done
--    41  length of the mark(3)
--    45  length of the claim ID that wrote it(4)
--    50  token(19) of the last claim. The largest token drawn is this one and 'more'
--    70  since(16) when the claim is granted
--    87  start(16) of its lease, which a renewal changes
--   104  more(5): tokens that its span has after the first
--   110  of an idle record: mark, and the ID that wrote it
--        of one that is held or gone: lease(15) as seconds(8) '.' µs(6), and at
--        126 id ' ' details mark, and the ID that wrote it
--        of a line: n ' ' total ' ' held ' ' upto ' ' arrivals ' ' soonest(16) ' '
--        expires(16) ' ' tombs(16) ' ' capacity ' ' left ' ' mark, and the ID that wrote it
--
-- id       length ':' ID, so that no ID is the beginning of another
-- details  capacity ' ' weight ' ' length of channel ' ' length of owner ' ' channel
--          ' ' owner ' ' note
-- n        claims in line; total is the sum of their weights
-- upto     the arrival of the last claim of the unbroken row of granted claims at
--          the front; held is the sum of their weights
-- arrivals how many claims have joined since the record became a line
-- soonest  nothing ends before
-- expires  C and Z expire then: never before a claim
-- tombs    tombstones are in C and Z until then
-- capacity of all claims in line; of no meaning without claims
-- left     how many calls have taken a claim out since the record became a line
--
-- C holds  'e' id -> token(19) ' ' since(16) ' ' 'granted' or 'waiting' ' ' arrival(16)
--                    ' ' more(5) ' ' length(3) of the mark at the grant ' ' mark details
--          't' id -> a tombstone: 'l' left, 'a' adopted, or 'b' reason: broken
--          'r' left modulo 64 -> the name of a call that took a claim out
-- Z holds  'o' id -> arrival - 2^53: negative, the order of the line
--          'e' id -> when the lease ends
--          't' id -> when the tombstone ends
-- A claim that lingers has a '~' before its id, so that nobody finds it.
--
-- Text at fixed places costs a free lock no more than a packed record. Text that is parsed
-- field by field cost 18 % of the throughput with many keys.
--
-- While a Cluster moves a hash slot it serves only requests all of whose keys are there,
-- and a record that is no line has no C and no Z. Such a request comes again with R
-- alone: C and Z are nil, and what needs them fails before it has written anything.

local function moving()
  error('FENCELOCK MOVING', 0)
end

local function damaged()
  error('FENCELOCK DAMAGED ' .. R, 0)
end

-- plus adds k < 10^9 to a token of 19 digits. A Lua number would lose the last
-- digits above 2^53.
local function plus(token, k)
  local low = tonumber(sub(token, 11, 19)) + k
  local high = tonumber(sub(token, 1, 10)) + math.floor(low / 1000000000)
  return fmt('%010.0f%09.0f', high, low % 1000000000)
end

-- parse_details returns capacity, weight and channel.
local function parse_details(details)
  local capacity, weight, length, at = string.match(details, '^(%d+) (%d+) (%d+) %d+ ()')
  if not at or at + length > #details then damaged() end
  return tonumber(capacity), tonumber(weight), sub(details, at, at + length - 1)
end

-- split returns the id and the details of a text that holds both.
local function split(text)
  local length, at = string.match(text, '^(%d+):()')
  if not at then damaged() end
  at = at + length
  return sub(text, 1, at - 1), sub(text, at + 1)
end

-- Parts of a claim as C holds it.
local function is_granted(claim) return sub(claim, 38, 44) == 'granted' end
local function arrival_of(claim) return tonumber(sub(claim, 46, 61)) or damaged() end
local function more_of(claim) return tonumber(sub(claim, 63, 67)) or damaged() end
local function details_at(claim) return 73 + (tonumber(sub(claim, 69, 71)) or damaged()) end
local function details_of(claim) return sub(claim, details_at(claim)) end
local function mark_of(claim) return sub(claim, 73, details_at(claim) - 1) end

local function claim_text(token, since, state, arrival, more, mark, details)
  return token .. fmt(' %016.0f %s %016.0f %05d %03d ', since, state, arrival, more, #mark) .. mark .. details
end

-- digits reads a number of the record, and nothing else.
local function digits(from, to)
  local text = sub(rec, from, to)
  if #text <= to - from or find(text, '%D') then damaged() end
  return tonumber(text)
end

-- load_claim reads the claim of a record that is held or gone.
local function load_claim(l, state, body)
  local one = {token = sub(rec, 50, 68), since = digits(70, 85), more = digits(104, 108), lingers = state == 'gone'}
  one.expires = digits(87, 102) + digits(110, 117) * 1000000 + digits(119, 124)
  one.id, one.details = split(body)
  local capacity, weight = parse_details(one.details)
  l.one, l.n, l.total, l.capacity = one, 1, weight, capacity
end

-- load_line reads the counts of a line.
local function load_line(l, body)
  local n, total, held, upto, arrivals, soonest, expires, tombs, capacity, left = string.match(body,
    '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) $')
  if not n or #soonest + #expires + #tombs ~= 48 then damaged() end
  l.n, l.total, l.held = tonumber(n), tonumber(total), tonumber(held)
  l.upto, l.arrivals = tonumber(upto), tonumber(arrivals)
  l.soonest, l.expires, l.tombs, l.left = tonumber(soonest), tonumber(expires), tonumber(tombs), tonumber(left)
  l.capacity = tonumber(capacity)
  if not C and now < l.expires then moving() end
  l.long = true
end

-- load reads the record.
local function load()
  local l = {last = fmt('%019d', 0), mark = '', marker = '', calls = string.rep('-', 32), left = 0,
    n = 0, total = 0, held = 0, upto = 0, arrivals = 0, soonest = FAR, expires = 0, tombs = 0, capacity = 0,
    hset = {}, zadd = {}, push = {}, channels = {}}
  if not rec then return l end
  if sub(rec, 1, 2) ~= '1 ' then
    error('FENCELOCK VERSION ' .. string.match(rec, '^%w*'), 0)
  end
  local state, mark, marker = sub(rec, 3, 6), digits(41, 43), digits(45, 48)
  local from, body = #rec - mark - marker + 1, nil
  if from < 110 or sub(rec, 109, 109) ~= ' ' then damaged() end
  l.calls, l.mark, l.marker = sub(rec, 8, 39), sub(rec, from, from + mark - 1), sub(rec, from + mark)
  body = sub(rec, 110, from - 1)
  digits(50, 68)
  l.last = plus(sub(rec, 50, 68), digits(104, 108))
  if state == 'held' or state == 'gone' then
    load_claim(l, state, sub(body, 17))
  elseif state == 'line' then
    load_line(l, body)
  elseif state ~= 'idle' or body ~= '' then
    damaged()
  end
  return l
end

-- shorten makes a line without claims and tombstones an idle record. Its last calls are
-- remembered.
local function shorten(l)
  if C and l.left > 0 then
    local at = l.left % 64 + 60
    local names = call('HMGET', C, 'r' .. at % 64, 'r' .. (at + 1) % 64, 'r' .. (at + 2) % 64, 'r' .. (at + 3) % 64)
    for i = 1, 4 do l.calls = l.calls .. (names[i] or '') end
    call('DEL', C)
  end
  l.calls, l.name = sub(l.calls .. (l.name or ''), -32), nil
  l.long, l.expires, l.tombs = false, 0, 0
end

-- save writes the record. It stays for a day after its leases have ended and the
-- clock has overtaken its tokens, and for ever if there is a mark. A line that needs C
-- and Z no more becomes idle here.
local function save(l)
  if l.long and l.n == 0 and l.tombs <= now then
    shorten(l)
  end
  if l.name then
    l.hset[#l.hset + 1], l.hset[#l.hset + 2] = 'r' .. l.left % 64, l.name
    l.left, l.name = l.left + 1, nil
  end
  local one, ends = l.one, tonumber(l.last)
  local state, token, since, more, body = 'idle', l.last, now, 0, ''
  if l.long then
    ends = math.max(ends, l.expires)
    state, body = 'line', fmt('%.0f %.0f %.0f %.0f %.0f %016.0f %016.0f %016.0f %.0f %d ', l.n, l.total, l.held, l.upto,
      l.arrivals, l.soonest, l.expires, l.tombs, l.capacity, l.left)
  elseif one then
    ends = math.max(ends, one.expires)
    local lease = one.expires - now
    state, token, since, more = one.lingers and 'gone' or 'held', one.token, one.since, one.more
    body = fmt('%08.0f.%06.0f ', math.floor(lease / 1000000), lease % 1000000) .. one.id .. ' ' .. one.details
  end
  local text = '1 ' .. state .. ' ' .. l.calls .. fmt(' %03d %04d ', #l.mark, #l.marker) .. token
    .. fmt(' %016.0f %016.0f %05d ', since, now, more) .. body .. l.mark .. l.marker
  l.changed = false
  if l.marker ~= '' then
    call('SET', R, text)
    return
  end
  call('SET', R, text, 'PX', fmt('%.0f', 86400000 + math.ceil((math.max(ends, now) - now) / 1000)))
end
