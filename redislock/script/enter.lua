-- enter joins the line of a lock, or finds the claim that is there already and starts its lease again.
--
-- ARGV  1 id  2 lease  3 lease while it waits  4 '1' to be refused rather than wait  5 span  6 capacity  7 weight
--       8 channel ' ' lock-delay ' ' #owner ' ' owner ' ' #trace ' ' trace ' ' note  9 the token to follow, or 0, and
--       for a member of a quorum 10 to 15, see member.lua
-- It answers
--   'g' token ' ' mark                              granted
--   {'g', now, claim, mark}                         found, and it holds
--   {'w', now, claim, ahead, first claim, soonest}  it waits; nothing in line ends before soonest
--   {'n', now, ahead, first claim}                  refused: it would wait
--   'k' size                                        another kind or size of lock
--   'o'                                             a claim with another capacity or weight has the ID
--   'x', 'xl', 'xa' or 'xb' reason                  the ID may not come back
--   and what member.lua answers to a ballot
local function enter(id, lease, waits, nowait, span, size, weight, tail, after, ...)
  local h = call('HMGET', H, 'c:' .. id, 'last', 'held', 'size', 'soonest', 'mark', 'kept', 'tombs', 'format', 'waits')
  if h[9] ~= '2' then rules().known(h[9]) end
  if h[5] and h[5] + 0 <= now then
    rules().fresh()
    return enter(id, lease, waits, nowait, span, size, weight, tail, after, ...)
  end
  local held, fits = (h[3] or 0) + 0, true
  if held > 0 or h[8] and h[8] + 0 > now then
    rules()
    local _, _, claim = r.find(id)
    if claim then
      if size ~= h[4] or weight ~= r.weight(claim) then return 'o' end
      r.renew(id, h[1] and lease or waits, -- what it carries stays that of the first Enter
        match(tail, '^%S+') .. match(claim, '^%d+ %d+ %d+ %d+ %d+ %S+( .*)$'))
      return r.standing(id)
    end
    local why = r.gone(id)
    if why ~= 'x' then return why end
    if held > 0 and size ~= h[4] then return 'k' .. h[4] end
    fits = held + weight <= size + 0 and not h[10]
    if not fits and nowait == '1' then
      local n, first = r.head()
      return {'n', stamp, n + (h[10] or 0), first}
    end
  end

  local token, ends = after == '0' and stamp or text(after + 1), text(now + (fits and lease or waits))
  if h[2] and h[2] + 1 > token + 0 then token = text(h[2] + 1) end
  if ... then
    local refusal
    refusal, token = judge(h[2] or 0, held, ...)
    if refusal then return refusal end
  end
  if token + 0 > NEVER - span then error('FENCELOCK EXHAUSTED ' .. H, 0) end
  local last = span == '1' and token or text(token + span - 1)
  local soonest = held > 0 and h[5] + 0 < ends + 0 and h[5] or ends
  local claim = ends .. ' ' .. token .. ' ' .. stamp .. ' ' .. span .. ' ' .. weight .. ' ' .. tail
  if fits then
    call('HSET', H, 'last', last, 'held', held > 0 and text(held + weight) or weight, 'size', size,
      'soonest', soonest, 'c:' .. id, claim)
    if not h[2] then call('HSET', H, 'format', 2) end
    if h[6] then call('HSET', H, 'm:' .. id, h[6]) end
  else
    local old = not h[10] and call('EXISTS', V, W) > 0 and 1 -- from before H was lost
    for _, key in ipairs(old and {V, W} or {}) do call('PEXPIREAT', key, 1) end
    call('HSET', V, 'c:' .. id, claim)
    call('ZADD', W, token, 'c:' .. id)
    for _, key in ipairs({V, W}) do call('PEXPIREAT', key, sub(h[7], 1, -4)) end
    call('HSET', H, 'last', last, 'soonest', soonest, 'waits', (h[10] or 0) + 1)
  end
  if not h[7] or h[7] - DAY < math.max(last, ends) then rules().keep(math.max(last, ends)) end
  return fits and 'g' .. token .. ' ' .. (h[6] or '') or r.standing(id)
end
return each(enter)
