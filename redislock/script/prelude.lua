-- prelude.lua, claim.lua and queue.lua stand before every script on locks. The comment in keys.go says how a lock
-- is kept. Lua counts times and tokens, µs since 1970, without loss: they are below 2^53.
--
-- KEYS  H of each lock. The other keys of a lock are made from it. A Cluster that moves a hash slot runs only scripts
--       all of whose KEYS are there, and V and W mostly do not exist. So they are not KEYS, and are touched only where
--       somebody waits, and before anything is written: the server refuses that if they are on another node
-- ARGV  what the verb says, for each lock in turn
-- To one lock the answer is that of the verb. To many it is an array of them, in which 'e' error stands where the
-- verb failed. What a replica refuses is an error of the whole call.
local call, sub, match, fmt = redis.call, string.sub, string.match, string.format
local H, V, W
local clock = call('TIME')
local stamp = clock[1] .. sub('00000' .. clock[2], -6) -- now as text: Lua is slow at writing numbers
local now, DAY, NEVER = stamp + 0, 86400000000, 9007199254740992

local function text(n) return fmt('%.0f', n) end

-- each runs a verb for each lock of the call.
local function each(verb)
  local answers, args = {}, #ARGV / #KEYS
  for i, key in ipairs(KEYS) do
    H, V, W = key, key .. 'v', key .. 'w'
    if #KEYS == 1 then return verb(unpack(ARGV)) end
    local ok, answer = pcall(verb, unpack(ARGV, (i - 1) * args + 1, i * args))
    if not ok then
      answer = type(answer) == 'table' and answer.err or answer
      local readonly = match(answer, 'READONLY You.*')
      if readonly then return {err = readonly} end
      answer = 'e' .. answer
    end
    answers[i] = answer
  end
  return answers
end

