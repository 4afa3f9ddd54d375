-- locks.lua is what every script on lines begins with: a call is for one lock or for many. The
-- script has set width, how many keys a lock has.
--
-- KEYS  record, claims, order of each lock in turn, or the record of one lock alone:
--       see record.lua. ballot.lua has a fourth key, see member.lua
-- ARGV  the arguments for each lock in turn
-- It answers an array with an answer for each lock, or 'e' error where the script failed:
-- the other locks are not concerned. To one lock it gives that answer alone, for an array
-- costs the server half a µs. Errors are not nested, because go-redis would lose
-- its place in the answer. What a replica refuses is an error of the whole call.
--
-- Most locks are free, and their scripts serve those first, without functions: to make some
-- costs the server more than a command. Nothing raises an error there, also where a record
-- is damaged.
local call, try, sub, find, fmt, num = redis.call, redis.pcall, string.sub, string.find, string.format, tonumber
-- The lock at hand: the keys of its record, claims and order, that of member.lua (in scripts
-- of a quorum alone), and the record.
local R, C, Z, M, rec
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local locks, answers, done = math.max(1, #KEYS / width), {}, 0
local args = #ARGV / locks
local FAR = 9007199254740992 -- 2^53: later than any time, and above each arrival
