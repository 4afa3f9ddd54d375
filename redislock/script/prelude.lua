-- prelude, claim and queue stand before every script on locks. keys.go says how a lock is kept. Times and tokens are µs
-- since 1970: below 2^53, so that Lua counts them without loss.
--
-- KEYS  H of each lock. V and W are made from it, and are no KEYS: a Cluster that moves a hash slot runs only scripts
--       whose KEYS all exist. They are touched only where somebody waits, and before anything is written: the server
--       refuses them if they are on another node
-- ARGV  what the verb says, for each lock in turn. '0' and '' at the end are left out, if they are for all locks
-- To one lock the answer is that of the verb. To many it is an array, in which 'e' error stands where the verb failed.
local call, sub, match, fmt = redis.call, string.sub, string.match, string.format
local H, V, W
local clock = call('TIME')
local stamp = clock[1] .. sub('00000' .. clock[2], -6) -- now as text: Lua is slow at writing numbers
local now, DAY, NEVER = stamp + 0, 86400000000, 9007199254740992

local function text(n)
  local digits = fmt('%d', n) -- faster than '%.0f', but wrong where a server of 32 bits runs
  return digits + 0 == n and digits or fmt('%.0f', n)
end

-- each runs a verb for each lock of the call.
local function each(verb)
  H = KEYS[1]
  if #KEYS == 1 then return verb(unpack(ARGV)) end
  local answers, args = {}, #ARGV / #KEYS
  for i, key in ipairs(KEYS) do
    H = key
    local ok, answer = pcall(verb, unpack(ARGV, (i - 1) * args + 1, i * args))
    if not ok then
      answer = type(answer) == 'table' and answer.err or answer
      local readonly = match(answer, 'READONLY You.*') -- a replica refuses the whole call
      if readonly then return {err = readonly} end
      answer = 'e' .. answer
    end
    answers[i] = answer
  end
  return answers
end
