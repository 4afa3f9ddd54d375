-- initialise ends the quarantine of a member.
--
-- KEYS  member, as ballot.lua says
-- ARGV  1 what the members of this quorum have agreed on
-- It answers '+', or 'm' and what this node has agreed on instead.
local call, fmt = redis.call, string.format
local M = KEYS[1]

--include member.lua

local born, _, text = read_member()
if born and text ~= ARGV[1] then return 'm' .. text end
write_member(0, ARGV[1])
return '+'
