-- break ends the claim whose span holds a token, and keeps its ID out until its lease would have ended.
--
-- ARGV  1 token  2 reason  3 how long it lingers, 0 for the lock-delay of the claim, or -1: ends also a claim that
--       lingers  4 its notice, or 0
-- It answers '+', 'x' if there is no such claim, or 'x+' if the last Break of this lock was of the token
-- for that reason.
return each(function(token, reason, linger, notice)
  reason, linger, notice = reason or '', linger or '0', notice or '0'
  local key, field, claim
  rules().fresh()
  r.each(function(k, f, c)
    local from, span = match(c, '^%d+ (%d+) %d+ (%d+)')
    if from + 0 <= token + 0 and token + 0 < from + span then key, field, claim = k, f, c end
  end)
  local this = token .. ' ' .. reason
  if not claim then return call('HGET', H, 'broke') == this and 'x+' or 'x' end
  local lingers = match(field, '^l:')
  if lingers and linger == '0' then return '+' end -- perhaps the same Break, sent again
  local id, holds = sub(field, 3), key == H and not lingers
  local ends, head, channel, delay, tail = match(claim, '^(%d+)( %d+ %d+ %d+ %d+ (%S+) )(%d+)(.*)$')
  local left, noticed = math.max(ends - now, 0), holds and call('HGET', H, 'n:' .. id)
  local promised = noticed and delay + 0 or 0
  if linger == '0' then linger = delay end
  if linger ~= '-1' then linger = math.max(linger, promised) end
  call('HSET', H, 'broke', this)
  if holds and notice ~= '0' then
    notice, delay = math.max(notice, noticed and left or 0), math.max(linger, promised, 0)
    r.bury(id, 'n' .. reason, notice + delay + left)
    call('HSET', H, 'n:' .. id, reason, field, text(now + notice) .. head .. text(delay) .. tail)
    r.sooner(now + notice)
    r.tell(channel, 'n' .. #id .. ':' .. id .. text(notice) .. ' ' .. reason)
    return '+'
  end
  linger = (key == H or lingers) and math.max(linger, 0) or 0
  if lingers and linger > 0 then linger = math.max(linger, left) end -- never sooner than promised
  r.bury(id, 'b' .. reason, math.max(left, linger))
  drop(key, field, claim, linger)
  r.tell(channel, 'b' .. #id .. ':' .. id .. reason)
  return '+'
end)
