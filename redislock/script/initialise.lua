-- initialise ends the quarantine of a member.
--
-- KEYS  member, as ballot.lua says
-- ARGV  1 what the members of this quorum have agreed on
-- It answers '+', or 'm' and what this node has agreed on instead.
local call, find, fmt = redis.call, string.find, string.format
local M = KEYS[1]

--include member.lua

local born, _, _, text = read_member()
if born and text ~= ARGV[1] then return 'm' .. text end
local history, run = this_run()
write_member(0, history, run, ARGV[1])
return '+'
