-- reserve lengthens the span of a claim that has the lock and is alone in the line. It does nothing
-- where a token was drawn since, and shortens no span.
--
-- ARGV  1 id  2 span
-- It answers 1, or 0 if nothing was done.
return each(function(id, span)
  local h = call('HMGET', H, 'c:' .. id, 'held', 'last', 'format')
  if h[4] ~= '2' then rules().known(h[4]) end
  local ends, token, since, old, weight, tail = match(h[1] or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  if not ends or ends + 0 <= now or weight ~= h[2] or h[3] + 0 ~= token + old - 1
    or token + 0 > NEVER - span then return 0 end
  span = text(math.max(old, span))
  call('HSET', H, 'last', text(token + span - 1), 'c:' .. id,
    ends .. ' ' .. token .. ' ' .. since .. ' ' .. span .. ' ' .. weight .. ' ' .. tail)
  return 1
end)
