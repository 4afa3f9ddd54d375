-- fence_del removes a key, under fence.lua. The mark stays: a stale holder must not
-- bring the key back.
--
-- KEYS  key
-- It answers how many keys there were.
return redis.call('DEL', KEYS[1])
