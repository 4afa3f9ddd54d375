-- fence_set writes a key, under fence.lua.
--
-- KEYS  key
-- ARGV  value, and options of SET
-- It answers OK.
return redis.call('SET', KEYS[1], unpack(ARGV))
