-- adopt gives a claim that is granted to another process: it gets another ID, owner and note.
--
-- KEYS  see locks.lua
-- ARGV  1 id    2 the claim that it becomes, as enter has it
-- It answers as enter does to a claim that is granted, or 'x', 'xl', 'xa', 'xb' reason if no
-- claim with the id is granted.
--
-- It works when the server is out of memory: see begin_write.
local width = 3
--include locks.lua
--include each.lua

--include line.lua

return each(function(old, becomes)
  begin_write()
  rec = call('GET', R)
  local id, details = split(sub(becomes, 23))
  local ends = now + sub(becomes, 7, 14) * 1000000 + sub(becomes, 16, 21)
  local l = load()
  purge(l)
  if find_claim(l, id) then return renew_found(l, id, ends) end -- the answer was lost
  local claim = find_claim(l, old)
  if claim and l.one then
    lengthen(l)
    commit(l)
    claim = call('HGET', C, 'e' .. old)
  end
  if not claim or not is_granted(claim) then
    commit_purge(l)
    return tombstone(l, old) or 'x'
  end

  local lease = math.max(tonumber(call('ZSCORE', Z, 'e' .. old) or damaged()), ends)
  call('ZREM', Z, 'o' .. old, 'e' .. old)
  call('HDEL', C, 'e' .. old)
  write(l, sub(claim, 1, details_at(claim) - 1) .. details, 'e' .. id, lease)
  write(l, nil, 'o' .. id, arrival_of(claim) - FAR)
  outlast(l, lease)
  add_tombstone(l, old, ends, 'a')
  commit(l)
  return standing(l, id)
end)
