-- await says where a claim stands, and takes out of its line what has expired.
--
-- KEYS  see locks.lua
-- ARGV  id
-- It answers {'g', …}, {'w', …} or 'x…' as enter.lua does.
local width = 3
--include locks.lua
--include each.lua

--include line.lua

return each(function(id)
  begin_write()
  rec = call('GET', R)
  local l = load()
  purge(l)
  commit_purge(l)
  if find_claim(l, id) then return standing(l, id) end
  return tombstone(l, id) or 'x'
end)
