-- claims makes what concerns one claim. A claim that is found is a key (H or V), a field, and the text of the claim.
local function claims()
  local r = {}
  -- touch needs no memory: Redis asks whether memory is short at the first write alone. A replica refuses it.
  function r.touch() call('HDEL', H, '') end

  function r.known(format)
    if (format or '2') ~= '2' then error('FENCELOCK VERSION ' .. format, 0) end
  end

  function r.weight(claim) return match(claim, '^%d+ %d+ %d+ %d+ (%d+) (%S+)') end -- and its channel

  function r.waits() return call('HGET', H, 'waits') end

  -- keep has the keys outlive a time by one to two days, in steps of a day. Who has read kept gives it.
  function r.keep(ends, kept)
    kept = kept or call('HGET', H, 'kept')
    if kept and kept - DAY >= ends then return end
    kept = text(ends + 2 * DAY)
    call('HSET', H, 'kept', kept)
    for _, key in ipairs(r.waits() and {H, V, W} or {H}) do call('PEXPIREAT', key, sub(kept, 1, -4)) end
    if call('HGET', H, 'mark') then call('PERSIST', H) end
  end

  -- bury keeps an ID out for a time, and shortens no tombstone. l replaces no reason. keys.go has the reasons.
  function r.bury(id, why, us)
    local key, ms = H .. 'x:' .. id, math.ceil(us / 1000)
    local old = call('GET', key)
    if old then ms = math.max(ms, call('PTTL', key)) end
    call('SET', key, why == 'l' and old or why, 'PX', ms)
    local ends = now + ms * 1000
    if ends > (call('HGET', H, 'tombs') or 0) + 0 then call('HSET', H, 'tombs', text(ends)) end
    r.keep(ends)
  end

  -- gone answers 'x', and behind it the tombstone of the ID if there is one: 'xl', 'xa', 'xb' or 'xn' with a reason.
  function r.gone(id)
    local tombs = call('HGET', H, 'tombs')
    return 'x' .. (tombs and tombs + 0 > now and call('GET', H .. 'x:' .. id) or '')
  end

  function r.find(id)
    local field = 'c:' .. id
    local h = call('HMGET', H, field, 'format', 'n:' .. id, 'kept', 'waits')
    r.known(h[2])
    if h[1] then return H, field, h[1], h[3], h[4] end -- and why it is under notice, and kept
    local claim = h[5] and call('EXISTS', V, W) > 0 and call('HGET', V, field)
    if claim then return V, field, claim end
  end

  -- renew starts a lease again, and shortens none. One under notice stays as it is: the answer is 'n', how long it has,
  -- and why. A tail is the new end of the claim. Then the answer does not tell of a notice.
  function r.renew(id, lease, tail)
    local key, field, claim, notice, kept = r.find(id)
    r.touch()
    local old, rest = match(claim or '0', '^(%d+)(.*)$')
    if old + 0 <= now then return r.gone(id) end
    if notice and not tail then return 'n' .. text(old - now) .. ' ' .. notice end
    local ends = notice and old + 0 or math.max(old, now + lease)
    if tail then rest = match(rest, '^ %d+ %d+ %d+ %d+ ') .. tail end
    call('HSET', key, field, text(ends) .. rest)
    r.keep(ends, kept)
    return '+'
  end

  -- ahead answers how many are before a claim if so many wait before it, when something in line may end if that is
  -- given, now, and the first that holds the lock or lingers.
  function r.ahead(waiting, soonest)
    local n, low, first = waiting + 0, NEVER, ''
    r.each(function(_, _, claim)
      local token = match(claim, ' (%d+)') + 0
      if token < low then low, first = token, claim end
      n = n + 1
    end, H)
    return n .. ' ' .. (soonest and text(soonest - now) .. ' ' or '') .. stamp .. ' ' .. first
  end

  -- standing answers 'g' or 'w' as enter does, or what gone answers.
  function r.standing(id)
    local key, field, claim = r.find(id)
    local rank = key == V and call('ZRANK', W, field)
    if not rank and key ~= H then return r.gone(id) end
    local ends, token, span = match(claim, '^(%d+) (%d+) %d+ (%d+)')
    local ticket = token .. ' ' .. span .. ' ' .. text(ends - now) .. ' '
    if rank then return 'w' .. ticket .. r.ahead(rank, call('HGET', H, 'soonest') or now) end
    return 'g' .. ticket .. (call('HGET', H, 'm:' .. id) or '')
  end
  return r
end
