-- fence refuses what follows it if the token is stale. Its lines are joined into one and put before a script's first,
-- so that the server's messages name the script's own lines.
--
-- KEYS  …, mark: a string, the largest token seen, in decimal
-- ARGV  …, token in decimal, ms to keep the mark or 0
-- They are taken away: what follows sees the KEYS and ARGV that are meant for it.
-- It answers the error 'FENCELOCK STALE' seen, or 'FENCELOCK DAMAGED' mark. Tokens of other stores are larger than what
-- Lua counts without loss, so they are compared as text, by length and then digit by digit.
do
  local mark, token, keep = KEYS[#KEYS], ARGV[#ARGV - 1], ARGV[#ARGV]
  KEYS[#KEYS], ARGV[#ARGV], ARGV[#ARGV - 1] = nil, nil, nil
  local seen = redis.call('GET', mark)
  if seen and not string.find(seen, '^[1-9]%d*$') then return redis.error_reply('FENCELOCK DAMAGED ' .. mark) end
  if seen and (#token < #seen or #token == #seen and token < seen) then
    return redis.error_reply('FENCELOCK STALE ' .. seen)
  end
  if keep ~= '0' then
    redis.call('SET', mark, token, 'PX', keep)
  elseif seen ~= token then
    redis.call('SET', mark, token)
  end
end
