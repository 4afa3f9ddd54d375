-- join is the least that an Enter with a lease, a token by the server's clock and a place in
-- line needs: no other kinds of lock, no call that is sent twice, nothing that expires.
--
-- KEYS  record, line
-- ARGV  1 the claim: the channel of its process, 16 bytes, and its id    2 ms that it lasts
-- It answers with the last token before its own, of which it has 64, or with 'w' if the
-- claim waits.
local call, sub = redis.call, string.sub
local rec = call('GET', KEYS[1])
if rec and sub(rec, 17) ~= '' then
  call('RPUSH', KEYS[2], ARGV[1])
  return 'w'
end
local clock = call('TIME')
local stamp = clock[1] .. sub('00000' .. clock[2], -6)
if rec and sub(rec, 1, 16) + 64 >= stamp + 0 then stamp = string.format('%.0f', sub(rec, 1, 16) + 65) end
call('SET', KEYS[1], stamp .. ARGV[1], 'PX', ARGV[2])
return stamp
