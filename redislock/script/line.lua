-- line.lua is the long way: what the scripts share once a lock is not simply
-- free. It is put where they say --include. They have set call, sub, find, fmt,
-- now (server time in µs), rec (the record, or false) and the three keys
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
--        soonest(16) ' ' keep(16) ' ' rest(16) ' ' sizes ' ' ring length ';' ring
--        marked
--
-- start    when the lease began, or was last renewed; lease is how long it lasts:
--          8 digits of seconds, 6 of µs
-- more     tokens that the span has after the first
-- last     the largest token drawn. With '.', the first token, and the time since
--          which the claim is granted, are start, and last is start + more
-- lens     length of the mark (3) and of the id that wrote it (4)
-- marked   that mark and that id
-- ring     the names of the last few calls that took a claim out. A client that
--          sends such a call again, since the reply was lost, learns that it is
--          done. Eight characters each.
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
-- Z holds  'o' id -> arrival - 2^53: negative, the order of the line
--          'e' id -> when the lease ends
--          't' id -> until when the id is laid to rest
-- A claim that lingers has a '~' before its id, so that nobody finds it.
--
-- Every step takes out what has expired, then grants what now fits, and tells
-- the processes of those who were granted. If all capacities are equal nobody
-- behind the first waiting claim is granted, so a step looks at the claims that
-- it grants and at one more.
local RW = 1048576
local FAR = 9007199254740992

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
  local l = {form = 'F', last = fmt('%019d', 0), mark = '', marker = '', ring = string.rep('-', 32),
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
    local n, total, held, upto, arrivals, soonest, keep, rest, list, ring, at = string.match(rec,
      '^ (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([%d:,]*) (%d+);()', 29)
    if not at or #soonest + #keep + #rest ~= 48 then damaged() end
    l.last = sub(rec, 3, 21)
    marks(at + ring, #rec, num(22, 24), num(25, 28))
    l.n, l.total, l.held, l.upto, l.arrivals = tonumber(n), tonumber(total), tonumber(held), tonumber(upto), tonumber(arrivals)
    l.soonest, l.keep, l.rest, l.ring = tonumber(soonest), tonumber(keep), tonumber(rest), sub(rec, at, at + ring - 1)
    for capacity, count in string.gmatch(list, '(%d+):(%d+)') do
      l.sizes[tonumber(capacity)] = tonumber(count)
    end
    l.long = true
  else
    damaged()
  end
  return l
end

-- save writes the record. It stays for a day after its leases have ended and the
-- clock has overtaken its tokens, and for ever if there is a mark. A line that
-- needs C and Z no more becomes short here.
local function save(l)
  if l.long and l.n == 0 and l.rest <= now then
    l.long, l.form, l.keep, l.ring = false, 'F', 0, sub(string.rep('-', 32) .. l.ring, -32)
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
      l.arrivals, l.soonest, l.keep, l.rest) .. table.concat(list, ',') .. ' ' .. #l.ring .. ';' .. l.ring .. l.mark .. l.marker
  end
  l.changed = false
  if l.marker ~= '' then
    call('SET', R, text)
    return
  end
  call('SET', R, text, 'PX', fmt('%.0f', 86400000 + math.ceil((math.max(ends, now) - now) / 1000)))
end

-- add notes a write of C (value nil: none) and of Z for commit.
local function add(l, value, member, score)
  if value then
    l.hset[#l.hset + 1] = member
    l.hset[#l.hset + 1] = value
  end
  if score then
    l.zadd[#l.zadd + 1] = fmt('%.0f', score)
    l.zadd[#l.zadd + 1] = member
  end
end

-- cover makes sure that C and Z outlive a claim or a rest that ends at the given
-- time. They get a minute more than asked, so that a renewal seldom has to.
local function cover(l, ends)
  l.soonest = math.min(l.soonest, ends)
  if ends > l.keep then
    l.keep = ends + math.max(60000000, ends - now)
    l.keys = true
  end
end

-- shout sends a message to a process. It is a hint: that it may not be sent must
-- not undo half of a step.
local function shout(chan, text)
  if chan ~= '' then redis.pcall('PUBLISH', chan, text) end
end

-- commit writes the record first: if memory is short and nothing has been taken
-- away yet, Redis refuses that, and nothing has happened.
local function commit(l)
  save(l)
  if l.fresh then
    -- Left from before the record was lost, or from a step that was cut short.
    call('DEL', C, Z)
    l.fresh = false
  end
  for i = 1, #l.hset, 1000 do
    call('HSET', C, unpack(l.hset, i, math.min(i + 999, #l.hset)))
  end
  for i = 1, #l.zadd, 1000 do
    call('ZADD', Z, unpack(l.zadd, i, math.min(i + 999, #l.zadd)))
  end
  if l.keys and l.long then
    local at = fmt('%.0f', math.ceil(l.keep / 1000))
    call('PEXPIREAT', C, at)
    call('PEXPIREAT', Z, at)
  end
  l.hset, l.zadd, l.keys = {}, {}, false
  for _, chan in ipairs(l.chans) do
    shout(chan, 'g' .. #l.mark .. ':' .. l.mark .. table.concat(l.push[chan]))
  end
  l.push, l.chans = {}, {}
end

-- flush writes what a purge has changed, for a step that changes nothing itself.
local function flush(l)
  if l.changed then commit(l) end
end

-- largest returns the largest capacity in use, and whether there are others.
local function largest(l)
  local top, kinds = 0, 0
  for capacity in pairs(l.sizes) do
    top, kinds = math.max(top, capacity), kinds + 1
  end
  return top, kinds > 1
end

local function mixed(l)
  local _, others = largest(l)
  return others and 1 or 0
end

-- tell notes that the claim's process is to hear of its grant.
local function tell(l, id, chan)
  if sub(id, 1, 1) == '~' then return end
  local ids = l.push[chan]
  if not ids then
    ids = {}
    l.push[chan] = ids
    l.chans[#l.chans + 1] = chan
  end
  ids[#ids + 1] = id
end

-- discount takes a claim out of the sums.
local function discount(l, claim)
  local capacity, weight = sizes(sub(claim, card_at(claim)))
  l.n, l.total = l.n - 1, l.total - weight
  if arrival_of(claim) <= l.upto then
    l.held = l.held - weight
  end
  local left = (l.sizes[capacity] or damaged()) - 1
  l.sizes[capacity] = left > 0 and left or nil
  l.changed = true
end

-- remove takes a claim out of a long line. Then comes advance.
local function remove(l, id, claim)
  discount(l, claim)
  call('ZREM', Z, 'o' .. id, 'e' .. id)
  call('HDEL', C, 'e' .. id)
end

-- admit goes through the claims from the first that was not granted, and notes in
-- granted those that now fit. It ends where nobody further behind can fit: with one
-- capacity that is at the first that does not.
local function admit(l, granted)
  local top = largest(l)
  local sum, from, row, step = l.held, l.upto, true, 1
  while sum < top do
    local fields = call('ZRANGEBYSCORE', Z, fmt('(%.0f', from - FAR), '(0', 'LIMIT', 0, step)
    if #fields == 0 then return end
    for i, member in ipairs(fields) do fields[i] = 'e' .. sub(member, 2) end
    for i, claim in ipairs(call('HMGET', C, unpack(fields))) do
      -- A claim whose text is lost may hold the lock, so nobody behind it may.
      if not claim then return end
      local card = sub(claim, card_at(claim))
      local capacity, weight, _, chan = sizes(card)
      from = arrival_of(claim)
      if weight + sum <= capacity then
        if not is_granted(claim) then
          granted[#granted + 1] = fields[i]
          granted[#granted + 1] = claim_text(sub(claim, 1, 19), now, 'g', from, l.mark, card)
          tell(l, sub(fields[i], 2), chan)
        end
        if row then
          l.upto, l.held = from, sum + weight
        end
      else
        row = false
      end
      sum = sum + weight
      if sum >= top then return end
    end
    step = math.min(step * 4, 100)
  end
end

-- advance grants what now fits. Something was taken away before, so that Redis
-- lets it write though memory may be short.
local function advance(l)
  local granted = {}
  admit(l, granted)
  for i = 1, #granted, 1000 do
    call('HSET', C, unpack(granted, i, math.min(i + 999, #granted)))
  end
  l.changed = true
end

-- purge takes out what has expired, and grants what that lets in. It looks only
-- when something can have expired, and takes out each claim once in its life.
local function purge(l)
  local one = l.one
  if one and one.expires <= now then
    l.one, l.form, l.n, l.total, l.sizes = nil, 'F', 0, 0, {}
    return
  end
  if not l.long then return end
  if now >= l.keep then
    -- C and Z have expired, and with them everything that was in line.
    l.long, l.form, l.keep, l.rest, l.ring = false, 'F', 0, 0, sub(string.rep('-', 32) .. l.ring, -32)
    l.n, l.total, l.held, l.upto, l.arrivals, l.soonest, l.sizes = 0, 0, 0, 0, 0, FAR, {}
    return
  end
  if now < l.soonest then return end
  repeat
    local due = call('ZRANGEBYSCORE', Z, 0, fmt('%.0f', now), 'LIMIT', 0, 200)
    if #due == 0 then break end
    local claims, out = call('HMGET', C, unpack(due)), {}
    for i, member in ipairs(due) do
      out[#out + 1] = member
      if sub(member, 1, 1) == 'e' then
        discount(l, claims[i] or damaged())
        out[#out + 1] = 'o' .. sub(member, 2)
      end
    end
    call('ZREM', Z, unpack(out))
    call('HDEL', C, unpack(due))
  until #due < 200
  -- A claim that is in Z and not in the sums, or the other way round, means that
  -- part of the line was lost. Nobody is granted then until all leases are over.
  if call('ZCOUNT', Z, '-inf', '(0') ~= l.n then damaged() end
  local next = call('ZRANGEBYSCORE', Z, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  l.soonest = tonumber(next[2] or FAR)
  l.changed = true
  if l.n == 0 and l.rest <= now then
    l.long, l.form, l.keep, l.ring = false, 'F', 0, sub(string.rep('-', 32) .. l.ring, -32)
    l.held, l.upto, l.arrivals = 0, 0, 0
    return
  end
  advance(l)
end

-- plus adds k < 10^9 to a token of 19 digits. A Lua number would lose the last
-- digits above 2^53.
local function plus(token, k)
  local low = tonumber(sub(token, 11, 19)) + k
  local high = tonumber(sub(token, 1, 10)) + math.floor(low / 1000000000)
  return fmt('%010.0f%09.0f', high, low % 1000000000)
end

-- draw draws a token and reserves its span.
local function draw(l, more)
  local token = plus(l.last, 1)
  local clock = fmt('%019.0f', now)
  if token < clock then token = clock end
  local last = plus(token, more)
  if #last > 19 or last > '9223372036854775807' then
    error('FENCELOCK EXHAUSTED ' .. R, 0)
  end
  l.last = last
  return token
end

-- join puts a claim behind all others of a long line.
local function join(l, id, token, expires, card, capacity, weight)
  local granted = weight + l.total <= capacity
  l.arrivals, l.n, l.total = l.arrivals + 1, l.n + 1, l.total + weight
  l.sizes[capacity] = (l.sizes[capacity] or 0) + 1
  if granted and l.held == l.total - weight then
    l.upto, l.held = l.arrivals, l.total
  end
  add(l, claim_text(token, now, granted and 'g' or 'w', l.arrivals, granted and l.mark or '', card), 'e' .. id, expires)
  add(l, nil, 'o' .. id, l.arrivals - FAR)
  cover(l, expires)
  return granted
end

-- lay lays an id to rest. An earlier rest is only ever prolonged, and what an
-- operator wrote stays the reason.
local function lay(l, id, ends, why)
  local member = 't' .. id
  local old = not l.fresh and call('HGET', C, member)
  if old then
    ends = math.max(ends, tonumber(call('ZSCORE', Z, member) or 0))
    if sub(old, 1, 1) == 'b' and why == 'l' then why = old end
  end
  add(l, why, member, ends)
  cover(l, ends)
  l.rest = math.max(l.rest, ends)
end

-- resting returns 'x' and why an id was laid to rest, or nil.
local function resting(l, id)
  if not l.long or l.rest <= now then return nil end
  local ends = call('ZSCORE', Z, 't' .. id)
  if not ends or tonumber(ends) <= now then return nil end
  return 'x' .. (call('HGET', C, 't' .. id) or '')
end

-- haunt lets a claim of a long line linger: it keeps its place, and nobody finds
-- it. It is written at once: what comes next looks at the line.
local function haunt(l, id, claim, ends)
  call('ZREM', Z, 'o' .. id, 'e' .. id)
  call('HDEL', C, 'e' .. id)
  call('HSET', C, 'e~' .. id, claim)
  call('ZADD', Z, fmt('%.0f', arrival_of(claim) - FAR), 'o~' .. id, fmt('%.0f', ends), 'e~' .. id)
  cover(l, ends)
  lay(l, id, ends, 'l')
end

-- lengthen makes a short line long.
local function lengthen(l)
  if l.long then return end
  local one = l.one
  l.long, l.form, l.fresh, l.one = true, 'L', true, nil
  l.n, l.total, l.held, l.upto, l.arrivals, l.soonest, l.keep, l.rest, l.sizes = 0, 0, 0, 0, 0, FAR, 0, 0, {}
  if not one then return end
  local capacity, weight = sizes(one.card)
  local id = one.lingers and '~' .. one.id or one.id
  join(l, id, one.token, one.expires, one.card, capacity, weight)
  l.hset[2] = claim_text(one.token, one.since, 'g', 1, l.mark, one.card)
  if one.lingers then lay(l, one.id, one.expires, 'l') end
end

-- first returns the first claim of the line and how long it lasts.
local function first(l)
  local one = l.one
  if one then
    return claim_text(one.token, one.since, 'g', 1, '', one.card), fmt('%.0f', one.expires - now)
  end
  local member = call('ZRANGE', Z, 0, 0)[1]
  if not member then return '', '0' end
  member = 'e' .. sub(member, 2)
  return call('HGET', C, member) or '', fmt('%.0f', (call('ZSCORE', Z, member) or now) - now)
end

-- standing answers where a claim that is in line stands, as enter.lua says.
local function standing(l, id, claim)
  local one = l.one
  if one then
    local _, _, span = sizes(one.card)
    return {'g', one.token, fmt('%.0f', one.expires - now), span, 0, l.mark}
  end
  claim = claim or call('HGET', C, 'e' .. id)
  local left = fmt('%.0f', (call('ZSCORE', Z, 'e' .. id) or damaged()) - now)
  local _, _, span = sizes(sub(claim, card_at(claim)))
  if is_granted(claim) then
    return {'g', sub(claim, 1, 19), left, span, mixed(l), mark_of(claim)}
  end
  return {'w', sub(claim, 1, 19), left, span, mixed(l), call('ZRANK', Z, 'o' .. id), fmt('%.0f', l.soonest - now), first(l)}
end

-- The ring remembers calls.
local function remember(l, name)
  l.ring = sub(l.ring .. name, l.long and -512 or -32)
end

local function remembers(l, name)
  for i = 1, #l.ring, 8 do
    if sub(l.ring, i, i + 7) == name then return true end
  end
  return false
end
