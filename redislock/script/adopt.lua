-- adopt gives a claim that holds to another process: it gets another ID, channel, owner, trace and note.
--
-- ARGV  1 id  2 its new id  3 lease  4 the end of a claim, as keys.go has it from the channel on
-- It answers 'g…' as enter does, or what gone answers if no claim with the id holds.
return each(function(old, id, lease, tail)
  rules().fresh()
  local h = call('HMGET', H, 'c:' .. old, 'm:' .. old, 'c:' .. id, 'n:' .. old)
  if not h[3] then -- else the answer was lost
    if not h[1] then return r.gone(old) end
    r.bury(old, 'a', lease)
    call('HDEL', H, 'c:' .. old, 'm:' .. old, 'n:' .. old)
    call('HSET', H, 'c:' .. id, h[1])
    if h[2] then call('HSET', H, 'm:' .. id, h[2]) end
    if h[4] then
      call('HSET', H, 'n:' .. id, h[4])
      r.bury(id, 'n' .. h[4], call('PTTL', H .. 'x:' .. old) * 1000)
    end
  end
  local _, _, claim, notice = r.find(id)
  if notice then -- the delay that was promised with it stays
    local promised = match(claim, '^%d+ %d+ %d+ %d+ %d+ %S+ (%d+)')
    tail = string.gsub(tail, ' (%d+)', function(delay) return ' ' .. text(math.max(delay, promised)) end, 1)
  end
  r.renew(id, lease, tail)
  return r.standing(id)
end)
