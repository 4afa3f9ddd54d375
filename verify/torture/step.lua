-- Takes time off the leases of one lock. keys.go in redislock says how they are kept.
-- KEYS  1 the hash of the lock; that of its waiters has its name and a v
-- ARGV  1 the time in microseconds
-- Returns how many claims it moved.
local call, moved = redis.call, 0
for _, key in ipairs({KEYS[1], KEYS[1] .. 'v'}) do
  local all = call('HGETALL', key)
  for i = 1, #all, 2 do
    local ends, rest = string.match(all[i + 1], '^(%d+)( .*)$')
    if ends and string.find(all[i], '^[cl]:') then
      call('HSET', key, all[i], string.format('%.0f', ends - ARGV[1]) .. rest)
      moved = moved + 1
    end
  end
end
if moved > 0 then call('HSET', KEYS[1], 'soonest', 1) end
return moved
