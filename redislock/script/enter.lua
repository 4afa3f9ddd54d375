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
--   what gone answers                              the ID may not come back
--   and what member.lua answers to a ballot. Parts have a blank between them.
local function enter(id, lease, tail, span, size, weight, nowait, after, wait_lease, ...)
  if (weight or '0') == '0' then weight = size end
  if (wait_lease or '0') == '0' then wait_lease = lease end
  local field = 'c:' .. id
  local last, held, kept, mark, tombs, format =
    unpack(call('HMGET', H, 'last', 'held', 'kept', 'mark', 'tombs', 'format'))
  local buried = tombs and tombs + 0 > now
  held = (held or 0) + 0
  if format ~= '2' then rules().known(format) end

  -- A free lock is granted. Otherwise the claim may be here already, be kept out, be of another kind, or have to wait.
  local fits, soonest, waiting, there = true, nil, nil, 0
  if held > 0 or buried then
    rules()
    local size_held, own
    soonest, size_held, waiting, own = unpack(call('HMGET', H, 'soonest', 'size', 'waits', field))
    if soonest and soonest + 0 <= now then
      r.fresh()
      return enter(id, lease, tail, span, size, weight, nowait, after, wait_lease, ...)
    end
    there = waiting and call('EXISTS', V, W) or 0
    local claim = own or there > 0 and call('HGET', V, field)
    if claim then
      if size ~= size_held or weight ~= r.weight(claim) then return 'o' end
      r.renew(id, own and lease or wait_lease, -- what it carries stays that of the first Enter
        match(tail, '^%S+') .. match(claim, '^%d+ %d+ %d+ %d+ %d+ %S+( .*)$'))
      return r.standing(id)
    end
    local why = buried and r.gone(id) or 'x'
    if why ~= 'x' then return why end
    if held > 0 and size ~= size_held then return 'k' .. size_held end
    fits = held + weight <= size + 0 and not waiting
    if not fits and nowait == '1' then return 'n' .. r.ahead(waiting or 0) end
  end

  -- The token is above the last, and not below the clock or the token to follow. To a member, a ballot says which.
  local token, ends = (after or '0') == '0' and now or after + 1, now + (fits and lease or wait_lease)
  if last and last + 1 > token then token = last + 1 end
  if ... then
    local refusal, ballot = judge(last or 0, held, ...)
    if refusal then return refusal end
    token = ballot + 0
  end
  if token > NEVER - span then error('FENCELOCK EXHAUSTED ' .. H, 0) end
  local top, token_text, end_text = token + span - 1, token == now and stamp or text(token), text(ends)
  last = span == '1' and token_text or text(top)

  -- Who fits is written among the holders, others among those that wait.
  if held == 0 or soonest + 0 > ends then soonest = end_text end
  local claim = end_text .. ' ' .. token_text .. ' ' .. stamp .. ' ' .. span .. ' ' .. weight .. ' ' .. tail
  if fits then
    call('HSET', H, 'last', last, 'held', held > 0 and text(held + weight) or weight, 'size', size, 'soonest', soonest,
      field, claim)
    if not format then call('HSET', H, 'format', 2) end
    if mark then call('HSET', H, 'm:' .. id, mark) end
  else
    -- V and W may be left of a line whose H was lost. Where they are not, no write may come before HSET: Redis asks at
    -- the first one alone whether memory is short.
    local old = not waiting and call('EXISTS', V, W) > 0
    for _, key in ipairs(old and {V, W} or {}) do call('PEXPIREAT', key, 1) end
    call('HSET', V, field, claim)
    call('ZADD', W, token_text, field)
    for _, key in ipairs(there < 2 and {V, W} or {}) do call('PEXPIREAT', key, sub(kept, 1, -4)) end
    call('HSET', H, 'last', last, 'soonest', soonest, 'waits', (waiting or 0) + 1)
  end
  if not kept or kept - DAY < math.max(top, ends) then rules().keep(math.max(top, ends), kept) end
  local ticket = token_text .. ' ' .. span .. ' ' .. (fits and lease or wait_lease) .. ' '
  return fits and 'g' .. ticket .. (mark or '') or 'w' .. ticket .. r.ahead(waiting or 0, soonest)
end
return each(enter)
