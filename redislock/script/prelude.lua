-- prelude.lua, claim.lua and queue.lua stand before every script on locks. The comment in keys.go says how a lock
-- is kept. Times are µs since 1970, and tokens are such times or a little more: below 2^53, so that Lua
-- counts them without loss.
--
-- A Cluster that moves a hash slot runs only scripts all of whose keys are there, and V and W mostly are not. So a
-- script of one lock may come with H alone. V and W are touched only where somebody waits, and before
-- anything is written: the server refuses that if they are elsewhere.
--
-- KEYS  H, V and W of each lock in turn, or H alone; the ballots of a quorum have a fourth
-- ARGV  what the verb says, for each lock in turn
-- To one lock the answer is that of the verb. To many it is an array of them, in which 'e' error stands where the
-- verb failed. What a replica refuses is an error of the whole call.
local call, sub, match, fmt = redis.call, string.sub, string.match, string.format
local H, V, W, M
local width = 3 -- keys of a lock
local clock = call('TIME')
local stamp = clock[1] .. sub('00000' .. clock[2], -6) -- now as text: Lua is slow at writing numbers
local now, DAY, NEVER = stamp + 0, 86400000000, 9007199254740992

local function text(n) return fmt('%.0f', n) end

-- each runs a verb for each lock of the call.
local function each(verb)
  local answers, locks = {}, #KEYS / width
  local args = #ARGV / locks
  if locks <= 1 then
    H, V, W, M = KEYS[1], KEYS[1] .. 'v', KEYS[1] .. 'w', KEYS[4]
    return verb(unpack(ARGV))
  end
  for i = 0, locks - 1 do
    H, V, W, M = unpack(KEYS, i * width + 1, (i + 1) * width)
    local ok, answer = pcall(verb, unpack(ARGV, i * args + 1, (i + 1) * args))
    if not ok then
      answer = type(answer) == 'table' and answer.err or answer
      local readonly = match(answer, 'READONLY You.*')
      if readonly then return {err = readonly} end
      answer = 'e' .. answer
    end
    answers[i + 1] = answer
  end
  return answers
end

