-- initialise ends the quarantine of a member.
--
-- KEYS  member, as ballot.lua says
-- ARGV  1 what the members of this quorum have agreed on
--       2 '1' if that replaces what they have agreed on before
-- It answers '+', or 'm' and what this node has agreed on instead.
local width = 1
--include locks.lua
--include each.lua

--include member.lua

return each(function(agreed, change)
  M = R
  local born, _, _, text = read_member()
  if born and text ~= agreed and change ~= '1' then return 'm' .. text end
  local history, run = this_run()
  write_member(0, history, run, agreed)
  return '+'
end)
