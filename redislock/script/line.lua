-- line.lua is what the scripts share once a lock is not simply free. It is put where
-- they say --include.
--
-- Every script takes out what has expired, then grants what now fits, and notifies
-- the processes of those who were granted. All claims of a line have one capacity, so nobody
-- behind the first waiting claim is granted, and a script looks at the claims that
-- it grants and at one more.
--include record.lua

-- write notes a field of C (value nil: none) and a score of Z for commit.
local function write(l, value, member, score)
  if value then
    l.hset[#l.hset + 1] = member
    l.hset[#l.hset + 1] = value
  end
  if score then
    l.zadd[#l.zadd + 1] = fmt('%.0f', score)
    l.zadd[#l.zadd + 1] = member
  end
end

-- outlast makes sure that C and Z outlive a claim or a tombstone that ends at the given
-- time. They get a minute more than asked, so that few renewals have to.
local function outlast(l, ends)
  l.soonest = math.min(l.soonest, ends)
  if ends > l.expires then
    l.expires = ends + math.max(60000000, ends - now)
    l.extended = true
  end
end

-- publish sends a message to a process. It is a hint: that it may not be sent must
-- not undo half of a script.
local function publish(channel, text)
  if channel ~= '' then redis.pcall('PUBLISH', channel, text) end
end

-- commit writes the record first: if memory is short and nothing has been taken
-- away yet, Redis refuses that, and nothing has happened.
local function commit(l)
  save(l)
  if l.fresh then
    -- Left from before the record was lost, or from a script that was cut short.
    call('DEL', C, Z)
    l.fresh = false
  end
  for i = 1, #l.hset, 1000 do
    call('HSET', C, unpack(l.hset, i, math.min(i + 999, #l.hset)))
  end
  for i = 1, #l.zadd, 1000 do
    call('ZADD', Z, unpack(l.zadd, i, math.min(i + 999, #l.zadd)))
  end
  if l.extended and l.long then
    local at = fmt('%.0f', math.ceil(l.expires / 1000))
    call('PEXPIREAT', C, at)
    call('PEXPIREAT', Z, at)
  end
  l.hset, l.zadd, l.extended = {}, {}, false
  for _, channel in ipairs(l.channels) do
    publish(channel, 'g' .. #l.mark .. ':' .. l.mark .. table.concat(l.push[channel]))
  end
  l.push, l.channels = {}, {}
end

-- commit_purge writes what purge has changed, for a script that changes nothing itself.
local function commit_purge(l)
  if l.changed then commit(l) end
end

-- notify notes that the claim's process is to hear of its grant.
local function notify(l, id, channel)
  if sub(id, 1, 1) == '~' then return end
  local ids = l.push[channel]
  if not ids then
    ids = {}
    l.push[channel] = ids
    l.channels[#l.channels + 1] = channel
  end
  ids[#ids + 1] = id
end

-- discount takes a claim out of the sums.
local function discount(l, claim)
  local _, weight = parse_details(details_of(claim))
  l.n, l.total = l.n - 1, l.total - weight
  if arrival_of(claim) <= l.upto then
    l.held = l.held - weight
  end
  l.changed = true
end

-- remove takes a claim out of C and Z. Then comes advance.
local function remove(l, id, claim)
  discount(l, claim)
  call('ZREM', Z, 'o' .. id, 'e' .. id)
  call('HDEL', C, 'e' .. id)
end

-- admit goes through the claims from the first that was not granted, and notes in
-- granted those that now fit. It ends at the first that does not.
local function admit(l, granted)
  local limit = 1
  while l.held < l.capacity do
    local fields = call('ZRANGEBYSCORE', Z, fmt('(%.0f', l.upto - FAR), '(0', 'LIMIT', 0, limit)
    if #fields == 0 then return end
    for i, member in ipairs(fields) do fields[i] = 'e' .. sub(member, 2) end
    for i, claim in ipairs(call('HMGET', C, unpack(fields))) do
      -- A claim whose text is lost may hold the lock, so nobody behind it may.
      if not claim then return end
      local details, arrival = details_of(claim), arrival_of(claim)
      local _, weight, channel = parse_details(details)
      if l.held + weight > l.capacity then return end
      if not is_granted(claim) then
        granted[#granted + 1] = fields[i]
        granted[#granted + 1] = claim_text(sub(claim, 1, 19), now, 'granted', arrival, more_of(claim), l.mark, details)
        notify(l, sub(fields[i], 2), channel)
      end
      l.upto, l.held = arrival, l.held + weight
    end
    limit = math.min(limit * 4, 100)
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

-- remove_expired takes the claims and tombstones whose time is over out of C and Z.
local function remove_expired(l)
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
end

-- purge takes out what has expired, and grants what that lets in. It looks only
-- when something can have expired, and takes out each claim once in its life.
local function purge(l)
  if l.one and l.one.expires <= now then
    l.one, l.n, l.total = nil, 0, 0
    return
  end
  if not l.long then return end
  if now >= l.expires then
    -- C and Z have expired, and with them everything that was in line.
    shorten(l)
    l.n, l.total, l.held, l.upto, l.arrivals, l.soonest = 0, 0, 0, 0, 0, FAR
    return
  end
  if now < l.soonest then return end
  remove_expired(l)
  if l.n == 0 and l.tombs <= now then
    shorten(l)
    l.held, l.upto, l.arrivals = 0, 0, 0
    return
  end
  advance(l)
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

-- join puts a claim, as held records have it, behind all others of a line. waits_until is when
-- it expires if it has to wait, where that is another time.
local function join(l, one, id)
  local capacity, weight = parse_details(one.details)
  local granted = weight + l.total <= capacity
  l.arrivals, l.n, l.total, l.capacity = l.arrivals + 1, l.n + 1, l.total + weight, capacity
  if granted then
    l.upto, l.held = l.arrivals, l.total
  end
  local state, mark, ends = 'waiting', '', one.waits_until or one.expires
  if granted then
    state, mark, ends = 'granted', l.mark, one.expires
  end
  write(l, claim_text(one.token, one.since, state, l.arrivals, one.more, mark, one.details), 'e' .. id, ends)
  write(l, nil, 'o' .. id, l.arrivals - FAR)
  outlast(l, ends)
end

-- add_tombstone keeps a claim ID out. An earlier tombstone is only ever prolonged, and
-- what an operator wrote, or that another has adopted the claim, stays the reason.
local function add_tombstone(l, id, ends, why)
  local member = 't' .. id
  local old = not l.fresh and call('HGET', C, member)
  if old then
    ends = math.max(ends, tonumber(call('ZSCORE', Z, member) or 0))
    if why == 'l' then why = old end
  end
  write(l, why, member, ends)
  outlast(l, ends)
  l.tombs = math.max(l.tombs, ends)
  -- If the last claim has just been taken out, C and Z begin anew, and would stay.
  l.extended = true
end

-- tombstone returns 'x' and why a claim ID may not enter, or nil.
local function tombstone(l, id)
  if not l.long or l.tombs <= now then return nil end
  local ends = call('ZSCORE', Z, 't' .. id)
  if not ends or tonumber(ends) <= now then return nil end
  return 'x' .. (call('HGET', C, 't' .. id) or '')
end

-- let_linger makes a claim of a line linger: it stays in line, and nobody finds it. It is
-- written at once, for what comes next looks at the line.
local function let_linger(l, id, claim, ends)
  call('ZREM', Z, 'o' .. id, 'e' .. id)
  call('HDEL', C, 'e' .. id)
  call('HSET', C, 'e~' .. id, claim)
  call('ZADD', Z, fmt('%.0f', arrival_of(claim) - FAR), 'o~' .. id, fmt('%.0f', ends), 'e~' .. id)
  outlast(l, ends)
  add_tombstone(l, id, ends, 'l')
end

-- tell_first lets the first who waits look again: when a claim ahead ends has changed.
local function tell_first(l)
  local member = call('ZRANGEBYSCORE', Z, fmt('(%.0f', l.upto - FAR), '(0', 'LIMIT', 0, 1)[1]
  local claim = member and call('HGET', C, 'e' .. sub(member, 2))
  if claim then
    local _, _, channel = parse_details(details_of(claim))
    publish(channel, 'l' .. sub(member, 2))
  end
end

-- lengthen makes the record a line.
local function lengthen(l)
  if l.long then return end
  if not C then moving() end
  local one = l.one
  l.long, l.fresh, l.one = true, true, nil
  l.n, l.total, l.held, l.upto, l.arrivals, l.left = 0, 0, 0, 0, 0, 0
  l.soonest, l.expires, l.tombs = FAR, 0, 0
  if not one then return end
  join(l, one, one.lingers and '~' .. one.id or one.id)
  if one.lingers then add_tombstone(l, one.id, one.expires, 'l') end
end

-- first returns the first claim of the line and how long it lasts.
local function first(l)
  local one = l.one
  if one then
    return claim_text(one.token, one.since, 'granted', 1, one.more, '', one.details), fmt('%.0f', one.expires - now)
  end
  local member = call('ZRANGE', Z, 0, 0)[1]
  if not member then return '', '0' end
  member = 'e' .. sub(member, 2)
  return call('HGET', C, member) or '', fmt('%.0f', (call('ZSCORE', Z, member) or now) - now)
end

-- find_claim returns the claim with an id, if it is in line and has not left: its text,
-- or true for the one of the record.
local function find_claim(l, id)
  local one = l.one
  if one then return one.id == id and not one.lingers end
  return l.long and call('HGET', C, 'e' .. id)
end

-- standing answers, as enter.lua says, for a claim that find_claim has found or that
-- has just joined.
local function standing(l, id)
  local one = l.one
  if one then
    return {'g', one.token, fmt('%.0f', one.expires - now), one.more + 1, l.mark}
  end
  local claim = call('HGET', C, 'e' .. id)
  local left = fmt('%.0f', (call('ZSCORE', Z, 'e' .. id) or damaged()) - now)
  local token, span = sub(claim, 1, 19), more_of(claim) + 1
  if is_granted(claim) then
    return {'g', token, left, span, mark_of(claim)}
  end
  return {'w', token, left, span, call('ZRANK', Z, 'o' .. id), fmt('%.0f', l.soonest - now), first(l)}
end

-- same_wish reports whether both details have one capacity and one weight.
local function same_wish(a, b)
  return string.match(a, '^%d+ %d+ ') == string.match(b, '^%d+ %d+ ')
end

-- rechannel returns the details of a claim with the channel of others. Owner and note stay those of
-- the first request.
local function rechannel(details, others)
  local kind, length, owner, at = string.match(details, '^(%d+ %d+ )(%d+)( %d+ )()')
  if not at then damaged() end
  local _, _, channel = parse_details(others)
  return kind .. #channel .. owner .. channel .. sub(details, at + length)
end

-- renew_found starts the lease of a claim again that find_claim has found, and answers
-- where it stands. It shortens no lease. With details, the claim gets their channel: its new
-- process is told by that one.
local function renew_found(l, id, ends, details)
  local one = l.one
  if one then
    one.details = details and rechannel(one.details, details) or one.details
    one.expires = math.max(one.expires, ends)
    save(l)
    return standing(l, id)
  end
  ends = math.max(tonumber(call('ZSCORE', Z, 'e' .. id) or damaged()), ends)
  local claim = details and (call('HGET', C, 'e' .. id) or damaged())
  local own = claim and details_of(claim)
  local moved = claim and rechannel(own, details)
  claim = moved ~= own and sub(claim, 1, details_at(claim) - 1) .. moved or nil
  write(l, claim, 'e' .. id, ends)
  outlast(l, ends)
  commit(l)
  return standing(l, id)
end

-- refusal returns why a new claim may not join, or nil.
local function refusal(l, id, details, no_wait)
  if l.one and l.one.id == id then return 'xl' end -- it lingers
  local why = tombstone(l, id)
  if why or l.n == 0 then return why end
  local capacity, weight = parse_details(details)
  if l.capacity ~= capacity then return 'k' .. l.capacity end
  if no_wait and weight + l.total > capacity then
    local head, left = first(l)
    return {'n', l.n, head, left}
  end
end

-- add_claim puts a new claim, as join takes it, into the line, and answers where it stands.
local function add_claim(l, one)
  if l.n == 0 and not l.long then
    l.one = one
    save(l)
    return 'g' .. one.token .. l.mark
  end
  lengthen(l)
  join(l, one, one.id)
  commit(l)
  return standing(l, one.id)
end

-- remember keeps the name of a call that takes a claim out.
local function remember(l, name)
  if l.long then
    l.name = name -- for save
  else
    l.calls = sub(l.calls .. name, -32)
  end
end

local function remembers(l, name)
  for i = 1, #l.calls, 8 do
    if sub(l.calls, i, i + 7) == name then return true end
  end
  for i = 1, l.long and math.min(l.left, 64) or 0 do
    if call('HGET', C, 'r' .. (l.left - i) % 64) == name then return true end
  end
  return false
end
