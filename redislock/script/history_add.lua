-- history_add adds to the history of a lock, a stream.
--
-- ARGV  1 how many records stay  2 ms that a record stays  3 … the records, each a JSON object
-- It answers '+'. Redis 5 has no XTRIM by age, hence XRANGE and XDEL.
local call, stream, newest = redis.call, KEYS[1], nil
for i = 3, #ARGV do newest = call('XADD', stream, 'MAXLEN', ARGV[1], '*', 'entry', ARGV[i]) end
local now, old = tonumber(string.match(newest, '^%d+')), nil
repeat
  old = call('XRANGE', stream, '-', string.format('%.0f', now - ARGV[2] - 1), 'COUNT', 100)
  for i = 1, #old do call('XDEL', stream, old[i][1]) end
until #old < 100
call('PEXPIREAT', stream, string.format('%.0f', now + ARGV[2]))
return '+'
