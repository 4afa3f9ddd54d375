-- adopt gives a claim that holds to another process: it gets another ID, channel, owner, trace and note.
--
-- ARGV  1 id  2 its new id  3 lease  4 the end of a claim, as keys.go has it from the channel on
-- It answers 'g…' as enter does, or 'x', 'xl', 'xa' or 'xb' reason if no claim with the id holds.
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
      r.bury(id, 'b' .. h[4], math.max(match(h[1], '^%d+') - now, 0) + lease)
    end
  end
  r.renew(id, lease, tail)
  return r.standing(id)
end)
