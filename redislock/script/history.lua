-- history returns the last records of the history of a lock.
--
-- KEYS  the stream
-- ARGV  1 how many
-- It answers the text of each, the newest first.
local records = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', ARGV[1])
for i = 1, #records do records[i] = records[i][2][2] end
return records
