-- line.lua is the long way: what the scripts share once a lock is not simply free.
-- It is put where they say --include.
--
-- Every step takes out what has expired, then grants what now fits, and tells
-- the processes of those who were granted. If all capacities are equal nobody
-- behind the first waiting claim is granted, so a step looks at the claims that
-- it grants and at one more.
--include record.lua

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
    shout(chan, (mixed(l) == 1 and 'm' or 'g') .. #l.mark .. ':' .. l.mark .. table.concat(l.push[chan]))
  end
  l.push, l.chans = {}, {}
end

-- flush writes what a purge has changed, for a step that changes nothing itself.
local function flush(l)
  if l.changed then commit(l) end
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
    shorten(l)
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
    shorten(l)
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
  -- If the last claim has just been taken out, C and Z begin anew, and would stay.
  l.keys = true
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
  if not C then moving() end
  local one = l.one
  l.long, l.form, l.fresh, l.one = true, 'L', true, nil
  l.n, l.total, l.held, l.upto, l.arrivals, l.left, l.soonest, l.keep, l.rest, l.sizes = 0, 0, 0, 0, 0, 0, FAR, 0, 0, {}
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

-- remember keeps the name of a call that takes a claim out.
local function remember(l, name)
  if l.long then
    l.name = name -- for save
  else
    l.ring = sub(l.ring .. name, -32)
  end
end

local function remembers(l, name)
  for i = 1, #l.ring, 8 do
    if sub(l.ring, i, i + 7) == name then return true end
  end
  for i = 1, l.long and math.min(l.left, 64) or 0 do
    if call('HGET', C, 'r' .. (l.left - i) % 64) == name then return true end
  end
  return false
end
