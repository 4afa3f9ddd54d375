-- renew starts the leases of many claims again. It makes no claim, and shortens
-- no lease.
--
-- KEYS  record, claims, order of each claim in turn, or the record of one claim
--       alone: see record.lua
-- ARGV  id, lease(15) of each claim in turn
-- It answers {flags, text, …}: flags has one letter for each claim, '+' alive,
-- 'x' gone, 'e' failed, and for each that is not alive there is a text, as
-- leave.lua answers or the error's.
--
-- It works when the server is out of memory, as leave.lua says.
local call, sub, find, fmt = redis.call, string.sub, string.find, string.format
local R, C, Z, rec
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

--include line.lua

local stamp = fmt('%016.0f', now)

-- renew_held renews a claim that is alone in a line without a mark: the usual case. It
-- reports whether it did.
local function renew_held(id, lease, ends)
  if sub(rec, 126, 125 + #id) ~= id or sub(rec, 1, 6) ~= '1 held' or sub(rec, 41, 48) ~= '000 0000' then
    return false
  end
  local old = sub(rec, 87, 102) + sub(rec, 110, 117) * 1000000 + sub(rec, 119, 124)
  local last = sub(rec, 50, 68) + sub(rec, 104, 108)
  if old <= now then return false end
  if old < ends then
    local px = 86400000 + math.ceil(((last > ends and last or ends) - now) / 1000)
    call('SET', R, sub(rec, 1, 86) .. stamp .. sub(rec, 103, 109) .. lease .. sub(rec, 125), 'PX', fmt('%.0f', px))
  end
  return true
end

-- renew answers nil if the claim is alive, and otherwise why not.
local function renew(id, lease)
  rec = call('GET', R)
  local ends = now + sub(lease, 1, 8) * 1000000 + sub(lease, 10, 15)
  if rec and renew_held(id, lease, ends) then return nil end
  local l = load()
  local one = l.one
  if one then
    if one.id ~= id or one.lingers or one.expires <= now then return 'x' end
    one.expires = math.max(one.expires, ends)
    save(l)
    return nil
  end
  if not l.long or l.expires <= now then return 'x' end
  local old = call('ZSCORE', Z, 'e' .. id)
  if not old or tonumber(old) <= now then return tombstone(l, id) or 'x' end
  if tonumber(old) >= ends then return nil end
  if ends > l.expires then
    outlast(l, ends)
    write(l, nil, 'e' .. id, ends)
    commit(l)
  else
    call('ZADD', Z, fmt('%.0f', ends), 'e' .. id)
  end
  return nil
end

if KEYS[3] then redis.pcall('ZREM', KEYS[3], '') end
local flags, answer = {}, {''}
for i = 1, #ARGV / 2 do
  R, C, Z = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  -- One damaged line costs its own claims only.
  local ok, why = pcall(renew, ARGV[2 * i - 1], ARGV[2 * i])
  if ok and not why then
    flags[i] = '+'
  else
    flags[i] = ok and 'x' or 'e'
    answer[#answer + 1] = type(why) == 'table' and why.err or why
  end
end
answer[1] = table.concat(flags)
return answer
