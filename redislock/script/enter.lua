-- enter joins the line of a lock, or finds the claim that is there already and starts its lease again.
--
-- ARGV  1 id  2 lease  3 channel ' ' lock-delay ' ' #owner ' ' owner ' ' #trace ' ' trace ' ' note  4 span  5 capacity
--       6 weight, or '0' for the capacity  7 '1' to be refused rather than wait  8 the token to follow, or '0'  9 the
--       lease of a claim that waits, or '0' for that of 2, and for a member of a quorum 10 to 15, see member.lua
-- It answers
--   'g' token span left mark                       it holds, and its lease lasts for left
--   'w' token span left ahead soonest now claim    it waits; soonest is when something in line may end, counted from
--                                                  now, and claim is the first in line
--   'n' ahead now claim                            refused: it would wait
--   'k' size                                       another kind or size of lock
--   'o'                                            a claim with another capacity or weight has the ID
--   'x', 'xl', 'xa' or 'xb' reason                 the ID may not come back
--   and what member.lua answers to a ballot. Parts have a blank between them.
local function enter(id, lease, tail, span, size, weight, nowait, after, waits, ...)
  local field = 'c:' .. id
  local h = call('HMGET', H, 'last', 'held', 'kept', 'mark', 'tombs', 'format') -- of a free lock there is no more
  local last, kept, mark, buried, format = h[1], h[3], h[4], h[5] and h[5] + 0 > now, h[6]
  if format ~= '2' then rules().known(format) end
  local held, fits, soonest, line, keys = (h[2] or 0) + 0, true, nil, nil, 0
  if (weight or '0') == '0' then weight = size end
  if (waits or '0') == '0' then waits = lease end
  if held > 0 or buried then
    rules()
    h = call('HMGET', H, 'soonest', 'size', 'waits', field)
    soonest, line = h[1], h[3]
    if soonest and soonest + 0 <= now then
      r.fresh()
      return enter(id, lease, tail, span, size, weight, nowait, after, waits, ...)
    end
    keys = line and call('EXISTS', V, W) or 0
    local claim = h[4] or keys > 0 and call('HGET', V, field)
    if claim then
      if size ~= h[2] or weight ~= r.weight(claim) then return 'o' end
      r.renew(id, h[4] and lease or waits, -- what it carries stays that of the first Enter
        match(tail, '^%S+') .. match(claim, '^%d+ %d+ %d+ %d+ %d+ %S+( .*)$'))
      return r.standing(id)
    end
    local why = buried and r.gone(id) or 'x'
    if why ~= 'x' then return why end
    if held > 0 and size ~= h[2] then return 'k' .. h[2] end
    fits = held + weight <= size + 0 and not line
    if not fits and nowait == '1' then return 'n' .. r.ahead(line or 0) end
  end

  local token, ends = (after or '0') == '0' and now or after + 1, now + (fits and lease or waits)
  if last and last + 1 > token then token = last + 1 end
  if ... then
    local refusal, ballot = judge(last or 0, held, ...)
    if refusal then return refusal end
    token = ballot + 0
  end
  if token > NEVER - span then error('FENCELOCK EXHAUSTED ' .. H, 0) end
  local endText, tokenText = text(ends), token == now and stamp or text(token)
  local top = token + span - 1
  last = span == '1' and tokenText or text(top)
  if held == 0 or soonest + 0 > ends then soonest = endText end
  local claim = endText .. ' ' .. tokenText .. ' ' .. stamp .. ' ' .. span .. ' ' .. weight .. ' ' .. tail
  if fits then
    call('HSET', H, 'last', last, 'held', held > 0 and text(held + weight) or weight, 'size', size, 'soonest', soonest,
      field, claim)
    if not format then call('HSET', H, 'format', 2) end
    if mark then call('HSET', H, 'm:' .. id, mark) end
  else
    local old = not line and call('EXISTS', V, W) > 0 -- from before H was lost. The first write must be one for memory
    for _, key in ipairs(old and {V, W} or {}) do call('PEXPIREAT', key, 1) end
    call('HSET', V, field, claim)
    call('ZADD', W, tokenText, field)
    for _, key in ipairs(keys < 2 and {V, W} or {}) do call('PEXPIREAT', key, sub(kept, 1, -4)) end
    call('HSET', H, 'last', last, 'soonest', soonest, 'waits', (line or 0) + 1)
  end
  if not kept or kept - DAY < math.max(top, ends) then rules().keep(math.max(top, ends)) end
  local ticket = tokenText .. ' ' .. span .. ' ' .. (fits and lease or waits) .. ' '
  return fits and 'g' .. ticket .. (mark or '') or 'w' .. ticket .. r.ahead(line or 0, soonest)
end
return each(enter)
