-- vote is enter for a node of a quorum: a server that was started again, and may have
-- lost what it had granted, must not grant before it has noticed that.
--
-- KEYS  record, and two more that a line would need; member, which has the server's replication id
-- ARGV  1 what the record has of the claim, its id first    2 ms that the record lasts
-- It answers as enter does, and with 'x' too if the server has another history.
local call, sub = redis.call, string.sub
local clock = call('TIME')
local stamp = clock[1] .. sub('00000' .. clock[2], -6)
local rec = call('GET', KEYS[1])
if rec and (sub(rec, 1, 1) ~= 'F' or sub(rec, 2, 17) >= stamp) then return 'x' end
local history = call('GET', KEYS[4])
if not history or not string.find(call('INFO', 'replication'), history, 1, true) then return 'x' end
call('SET', KEYS[1], 'C' .. stamp .. ARGV[1], 'PX', ARGV[2])
return stamp
