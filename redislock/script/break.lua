-- break ends the claim whose span holds a token, and keeps its ID out until its lease would have ended.
--
-- ARGV  1 token  2 reason  3 how long it lingers, 0 for the lock-delay of the claim, or -1: ends also a claim that
--       lingers  4 its notice, or 0
-- It answers '+', 'x' if there is no such claim, or 'x+' if the last Break of this lock was of the token.
return each(function(token, reason, linger, notice)
  reason, linger, notice = reason or '', linger or '0', notice or '0'
  local key, field, claim
  rules().fresh()
  r.each(function(k, f, c)
    local from, span = match(c, '^%d+ (%d+) %d+ (%d+)')
    if from + 0 <= token + 0 and token + 0 < from + span then key, field, claim = k, f, c end
  end)
  if not claim then return call('HGET', H, 'broke') == token and 'x+' or 'x' end
  local lingers = match(field, '^l:')
  if lingers and linger == '0' then return '+' end -- perhaps the same Break, sent again
  local id = sub(field, 3)
  local _, channel = r.weight(claim)
  local ends, head, delay, rest = match(claim, '^(%d+)( %d+ %d+ %d+ %d+ %S+ )(%d+)(.*)$')
  local noticed = key == H and not lingers and call('HGET', H, 'n:' .. id)
  local promised = noticed and delay + 0 or 0
  if linger == '0' then linger = delay end
  if linger ~= '-1' then linger = math.max(linger, promised) end
  if notice ~= '0' and key == H and not lingers then
    local over, after = math.max(now + notice, noticed and ends + 0 or 0), math.max(linger, promised, 0)
    call('HSET', H, 'broke', token, 'n:' .. id, reason, field, text(over) .. head .. text(after) .. rest, 'soonest',
      text(math.min(call('HGET', H, 'soonest'), over)))
    r.bury(id, 'b' .. reason, over - now + after + math.max(ends - now, 0))
    r.hurry()
    r.tell(channel, 'n' .. #id .. ':' .. id .. text(over - now) .. ' ' .. reason)
    return '+'
  end
  linger = (key == H or lingers) and math.max(linger, 0) or 0
  if lingers and linger > 0 then linger = math.max(linger, match(claim, '^%d+') - now) end -- never sooner than promised
  call('HSET', H, 'broke', token)
  r.bury(id, 'b' .. reason, math.max(match(claim, '^%d+') - now, linger))
  drop(key, field, claim, linger)
  r.tell(channel, 'b' .. #id .. ':' .. id .. reason)
  return '+'
end)
