-- drop takes a claim out, or lets it linger, and lets in who then fits. It stands before leave and break.
local function drop(key, field, claim, linger)
  if linger <= 0 then return r.grant(r.remove(key, field, claim)) end
  local id, ends = sub(field, 3), now + linger
  r.bury(id, 'l', linger)
  call('HDEL', key, field)
  call('HSET', key, 'l:' .. id, text(ends) .. match(claim, '^%d+(.*)$'))
  if key == V then
    call('ZREM', W, field)
    call('ZADD', W, match(claim, ' (%d+)'), 'l:' .. id)
  end
  r.sooner(ends)
end
