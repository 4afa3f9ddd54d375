-- Takes time off the leases of one lock. script/record.lua in redislock says how they are kept.
-- KEYS  1 the record of the line, 2 its sorted set
-- ARGV  1 the time in microseconds
-- Returns 1 if there was such a record, else 0.
local d, rec = tonumber(ARGV[1]), redis.call('GET', KEYS[1])
if not rec or string.sub(rec, 1, 2) ~= '1 ' then return 0 end
local state = string.sub(rec, 3, 6)
if state == 'held' or state == 'gone' then
  local lease = tonumber(string.sub(rec, 110, 117)) * 1000000 + tonumber(string.sub(rec, 119, 124))
  lease = math.max(0, lease - d)
  redis.call('SETRANGE', KEYS[1], 109, string.format('%08.0f.%06.0f', math.floor(lease / 1000000), lease % 1000000))
  return 1
elseif state == 'line' then
  local at = select(3, string.find(rec, '^%d+ %d+ %d+ %d+ %d+ ()', 110))
  redis.call('SETRANGE', KEYS[1], at - 1, '0000000000000000')
  for _, m in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if string.sub(m, 1, 1) == 'e' then redis.call('ZINCRBY', KEYS[2], -d, m) end
  end
  return 1
end
return 0
