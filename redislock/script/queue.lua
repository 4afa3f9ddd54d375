-- rules is what a line needs: what claims makes, and more. It is made when a verb first asks for it: a free lock needs
-- none of it, and to make a function costs as much as a small command. Then r has it.
local r
local function rules()
  V, W = H .. 'v', H .. 'w'
  if r then return r end
  r = claims()

  -- tell sends a hint to a process. A hint that may not be sent must not undo half of a script.
  function r.tell(channel, message) redis.pcall('PUBLISH', match(H, '^(.*){') .. '@' .. channel, message) end

  -- each calls f for each claim in line, or in one key.
  function r.each(f, only)
    for _, key in ipairs(only and {only} or r.waits() and {H, V} or {H}) do
      local h = call('HGETALL', key)
      for i = 1, #h, 2 do
        if match(h[i], '^[cl]:') then f(key, h[i], h[i + 1]) end
      end
    end
  end

  -- remove takes a claim out, and returns the weight that it held.
  function r.remove(key, field, claim)
    call('HDEL', key, field, 'm:' .. sub(field, 3), 'n:' .. sub(field, 3))
    if key == V then call('ZREM', W, field) end
    return key == H and r.weight(claim) + 0 or 0
  end

  -- grant lets in, from the front, all who fit when a weight has been freed. It runs after each removal.
  function r.grant(freed)
    local h, told = call('HMGET', H, 'size', 'mark', 'soonest', 'waits', 'held'), {}
    local size, mark, soonest, held = h[1], h[2] or '', h[3] or NEVER, (h[5] or 0) - freed
    local waits = h[4] and call('ZCARD', W) or 0
    while waits > 0 and held < size + 0 do
      local field = call('ZRANGE', W, 0, 0)[1]
      local id, claim = sub(field, 3), call('HGET', V, field)
      local weight, channel = r.weight(claim or '0 0 0 0 0 -')
      if held + weight > size + 0 then break end
      call('ZREM', W, field)
      call('HDEL', V, field)
      if claim then
        local ends, token, rest = match(claim, '^(%d+) (%d+) %d+( .*)$')
        held, soonest = held + weight, math.min(soonest, ends)
        call('HSET', H, field, ends .. ' ' .. token .. ' ' .. stamp .. rest)
        if h[2] then call('HSET', H, 'm:' .. id, mark) end
        told[channel] = (told[channel] or 'g' .. #mark .. ':' .. mark) .. #id .. ':' .. id
      end
      waits = waits - 1
    end
    if waits > 0 then call('HSET', H, 'waits', waits) else call('HDEL', H, 'waits') end
    if held > 0 then call('HSET', H, 'held', text(held), 'soonest', text(soonest))
    else call('HDEL', H, 'held', 'size', 'soonest') end
    for channel, message in pairs(told) do r.tell(channel, message) end
  end

  -- sooner notes that a claim may end sooner than it did, and tells the first that waits.
  function r.sooner(ends)
    call('HSET', H, 'soonest', text(math.min(call('HGET', H, 'soonest'), ends)))
    local first = r.waits() and call('ZRANGE', W, 0, 0)[1]
    local _, channel = r.weight(first and call('HGET', V, first) or '')
    if channel then r.tell(channel, 'l' .. #first - 2 .. ':' .. sub(first, 3)) end
  end

  -- fresh comes before what a verb does to a line. If claims can have expired, it takes them out, and lets in who then
  -- fits. A renewal leaves soonest as it is, so this goes through the line about once in a lease.
  function r.fresh()
    local h, held, first = call('HMGET', H, 'soonest', 'format', 'waits'), 0, NEVER
    r.known(h[2])
    if h[3] then call('EXISTS', V, W) end -- fails if they are on another node
    r.touch()
    if not h[1] or h[1] + 0 > now then return end
    r.each(function(key, field, claim)
      local ends, weight = match(claim, '^%d+') + 0, r.weight(claim)
      local noticed = ends <= now and match(field, '^c:') and call('HGET', H, 'n:' .. sub(field, 3))
      local delay = noticed and match(claim, '^%d+ %d+ %d+ %d+ %d+ %S+ (%d+)') or 0
      if ends <= now and ends + delay > now then -- its notice is over
        ends = ends + delay
        call('HDEL', H, field)
        call('HSET', H, 'l:' .. sub(field, 3), text(ends) .. match(claim, '^%d+(.*)$'))
      end
      if ends <= now then r.remove(key, field, claim) else first = math.min(first, ends) end
      if ends > now and key == H then held = held + weight end
    end)
    call('HSET', H, 'soonest', text(first), 'held', text(held))
    r.grant(0)
  end

  return r
end
