-- initialise ends the quarantine of a member.
--
-- KEYS  that of the member
-- ARGV  1 what the members of this quorum have agreed on  2 '1' if that replaces what they have agreed on before
-- It answers '+', or 'm' and what this node has agreed on instead.
M = KEYS[1]
local born, _, _, known = read_member()
if born and known ~= ARGV[1] and ARGV[2] ~= '1' then return 'm' .. known end
local history, run = this_run()
write_member(0, history, run, ARGV[1])
return '+'
