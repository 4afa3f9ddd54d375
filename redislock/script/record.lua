-- record.lua says how a lock is kept, and reads and writes its record. It is put
-- where other scripts say --include. They have set call, sub, find, fmt, now
-- (server time in µs), rec (the record, or false) and the three keys
--
--   R  the record, a string
--   C  the claims, a hash
--   Z  their order and their ends, a sorted set
--
-- R begins with the format's version, 1, and says in which of three forms the
-- line is. Numbers in parentheses are widths; numbers of a width have leading
-- zeros. Times are µs since 1970.
--
--   F  nobody is in line
--        '1F' start(16) ring(32) '.' more(5)
--        '1F' start(16) ring(32) '+' more(5) last(19) lens(7) marked
--   C  one claim is in line, granted, and lives here
--        '1C' start(16) ring(32) '.' lease(14) more(5) ';' id card
--        '1C' start(16) ring(32) '+' lease(14) more(5) ';' id card marked last(19)
--        token(19) since(16) lingers(1) lens(7)
--   L  the claims are in C and Z
--        '1L' last(19) lens(7) ' ' n ' ' total ' ' held ' ' upto ' ' arrivals ' '
--        soonest(16) ' ' keep(16) ' ' rest(16) ' ' sizes ' ' left ';' ring(32)
--        marked
--
-- start    when the lease began, or was last renewed; lease is how long it lasts:
--          8 digits of seconds, 6 of µs
-- more     tokens that the span has after the first
-- last     the largest token drawn. With '.', the first token, and the time since
--          which the claim is granted, are start, and last is start + more
-- lens     length of the mark (3) and of the id that wrote it (4)
-- marked   that mark and that id
-- ring     the names of the last four calls that took a claim out, of a long line
--          those before it became long. A client that sends such a call again, since
--          the reply was lost, learns that it is done. Eight characters each.
-- left     how many calls have taken a claim out since the line became long
-- id       length ':' id, so that one id is never the beginning of another
-- card     capacity ' ' weight ' ' span ' ' length of channel ' ' length of owner
--          ' ' channel owner note
-- n        claims in line; total is the sum of their weights
-- upto     the arrival of the last claim of the unbroken row of granted claims at
--          the front; held is the sum of their weights
-- arrivals how many claims have joined since the line became long
-- soonest  nothing ends before
-- keep     C and Z are to expire then: never before a claim
-- rest     ids laid to rest are in C and Z until then
-- sizes    capacity ':' number of claims with it, separated by ','
--
-- C holds  'e' id -> token(19) since(16) 'g' or 'w' arrival(16) mark length(3)
--                    mark at the time of the grant, card
--          't' id -> 'l' laid to rest, or 'b' reason: broken
--          'r' left modulo 64 -> the name of a call that took a claim out
-- Z holds  'o' id -> arrival - 2^53: negative, the order of the line
--          'e' id -> when the lease ends
--          't' id -> until when the id is laid to rest
-- A claim that lingers has a '~' before its id, so that nobody finds it.
--
-- While a Cluster moves a slot it serves only requests all of whose keys are there,
-- and an idle or single lock has no C and no Z. Such a request comes again with R
-- alone: C and Z are nil, and what needs them fails before it has written anything.
local RW = 1048576
local FAR = 9007199254740992

local function moving()
  error('FENCELOCK MOVING', 0)
end

local function damaged()
  error('FENCELOCK DAMAGED ' .. R, 0)
end

-- sizes returns capacity, weight, span and channel of a card.
local function sizes(card)
  local capacity, weight, span, chan, at = string.match(card, '^(%d+) (%d+) (%d+) (%d+) %d+ ()')
  if not at or at + chan > #card + 1 then damaged() end
  return tonumber(capacity), tonumber(weight), tonumber(span), sub(card, at, at + chan - 1)
end

-- split returns the id and the card of a text that holds both.
local function split(text)
  local length, at = string.match(text, '^(%d+):()')
  if not at then damaged() end
  at = at + length
  return sub(text, 1, at - 1), sub(text, at)
end

-- Parts of a claim as C holds it.
local function is_granted(claim) return sub(claim, 36, 36) == 'g' end
local function arrival_of(claim) return tonumber(sub(claim, 37, 52)) or damaged() end
local function card_at(claim) return 56 + (tonumber(sub(claim, 53, 55)) or damaged()) end
local function mark_of(claim) return sub(claim, 56, card_at(claim) - 1) end

local function claim_text(token, since, flag, arrival, mark, card)
  return token .. fmt('%016.0f', since) .. flag .. fmt('%016.0f', arrival) .. fmt('%03d', #mark) .. mark .. card
end

-- load reads the record.
local function load()
  local l = {form = 'F', last = fmt('%019d', 0), mark = '', marker = '', ring = string.rep('-', 32), left = 0,
    n = 0, total = 0, held = 0, upto = 0, arrivals = 0, soonest = FAR, keep = 0, rest = 0, sizes = {},
    hset = {}, zadd = {}, push = {}, chans = {}}
  if not rec then return l end
  if sub(rec, 1, 1) ~= '1' then
    error('FENCELOCK VERSION ' .. string.match(rec, '^%w*'), 0)
  end
  -- num reads digits, and nothing else.
  local function num(from, to)
    local text = sub(rec, from, to)
    if text == '' or find(text, '%D') then damaged() end
    return tonumber(text)
  end
  -- marks reads what stands between two places: a mark and who wrote it.
  local function marks(from, to, m, i)
    if to - from + 1 ~= m + i then damaged() end
    l.mark, l.marker = sub(rec, from, from + m - 1), sub(rec, from + m, to)
  end
  local form, flag = sub(rec, 2, 2), sub(rec, 51, 51)
  l.form = form
  if form == 'F' then
    l.ring = sub(rec, 19, 50)
    local last = num(3, 18) + num(52, 56)
    if flag == '.' and #rec == 56 then
      l.last = fmt('%019.0f', last)
    elseif flag == '+' then
      l.last = sub(rec, 57, 75)
      num(57, 75)
      marks(83, #rec, num(76, 78), num(79, 82))
    else
      damaged()
    end
  elseif form == 'C' then
    l.ring = sub(rec, 19, 50)
    local start, body = num(3, 18), #rec
    local one = {expires = start + num(52, 59) * 1000000 + num(60, 65)}
    if flag == '.' then
      one.token, one.since, one.lingers = '000' .. sub(rec, 3, 18), start, false
      l.last = fmt('%019.0f', start + num(66, 70))
    elseif flag == '+' then
      num(-62, -1)
      local m, i = num(-7, -5), num(-4, -1)
      body = #rec - 62 - m - i
      if body < 72 then damaged() end
      marks(body + 1, #rec - 62, m, i)
      l.last, one.token, one.since = sub(rec, -62, -44), sub(rec, -43, -25), num(-24, -9)
      one.lingers = sub(rec, -8, -8) == '1'
    else
      damaged()
    end
    one.id, one.card = split(sub(rec, 72, body))
    local capacity, weight = sizes(one.card)
    l.one, l.n, l.total, l.sizes = one, 1, weight, {[capacity] = 1}
  elseif form == 'L' then
    local n, total, held, upto, arrivals, soonest, keep, rest, list, left, at = string.match(rec,
      '^ (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([%d:,]*) (%d+);()', 29)
    if not at or #soonest + #keep + #rest ~= 48 then damaged() end
    l.last = sub(rec, 3, 21)
    marks(at + 32, #rec, num(22, 24), num(25, 28))
    l.n, l.total, l.held, l.upto, l.arrivals = tonumber(n), tonumber(total), tonumber(held), tonumber(upto), tonumber(arrivals)
    l.soonest, l.keep, l.rest, l.left = tonumber(soonest), tonumber(keep), tonumber(rest), tonumber(left)
    l.ring = sub(rec, at, at + 31)
    for capacity, count in string.gmatch(list, '(%d+):(%d+)') do
      l.sizes[tonumber(capacity)] = tonumber(count)
    end
    if not C and now < l.keep then moving() end
    l.long = true
  else
    damaged()
  end
  return l
end

-- shorten makes a long line short in which nobody is and nothing rests. The last calls
-- are remembered.
local function shorten(l)
  if C and l.left > 0 then
    local at = l.left % 64 + 60
    local names = call('HMGET', C, 'r' .. at % 64, 'r' .. (at + 1) % 64, 'r' .. (at + 2) % 64, 'r' .. (at + 3) % 64)
    for i = 1, 4 do l.ring = l.ring .. (names[i] or '') end
    call('DEL', C)
  end
  l.ring, l.name = sub(l.ring .. (l.name or ''), -32), nil
  l.long, l.form, l.keep, l.rest = false, 'F', 0, 0
end

-- save writes the record. It stays for a day after its leases have ended and the
-- clock has overtaken its tokens, and for ever if there is a mark. A line that
-- needs C and Z no more becomes short here.
local function save(l)
  if l.long and l.n == 0 and l.rest <= now then
    shorten(l)
  end
  if l.name then
    l.hset[#l.hset + 1], l.hset[#l.hset + 2] = 'r' .. l.left % 64, l.name
    l.left, l.name = l.left + 1, nil
  end
  local text
  local ends, lens, stamp = tonumber(l.last), fmt('%03d%04d', #l.mark, #l.marker), fmt('%016.0f', now)
  if l.form == 'F' then
    text = '1F' .. stamp .. l.ring .. '+00000' .. l.last .. lens .. l.mark .. l.marker
  elseif l.form == 'C' then
    local one = l.one
    ends = math.max(ends, one.expires)
    local lease, _, _, span = one.expires - now, sizes(one.card)
    text = '1C' .. stamp .. l.ring .. fmt('+%08.0f%06.0f%05d;', math.floor(lease / 1000000), lease % 1000000, span - 1)
      .. one.id .. one.card .. l.mark .. l.marker .. l.last .. one.token .. fmt('%016.0f', one.since)
      .. (one.lingers and '1' or '0') .. lens
  else
    local list = {}
    for capacity, count in pairs(l.sizes) do
      list[#list + 1] = capacity .. ':' .. count
    end
    ends = math.max(ends, l.keep)
    text = '1L' .. l.last .. lens .. fmt(' %.0f %.0f %.0f %.0f %.0f %016.0f %016.0f %016.0f ', l.n, l.total, l.held, l.upto,
      l.arrivals, l.soonest, l.keep, l.rest) .. table.concat(list, ',') .. ' ' .. l.left .. ';' .. l.ring .. l.mark .. l.marker
  end
  l.changed = false
  if l.marker ~= '' then
    call('SET', R, text)
    return
  end
  call('SET', R, text, 'PX', fmt('%.0f', 86400000 + math.ceil((math.max(ends, now) - now) / 1000)))
end
