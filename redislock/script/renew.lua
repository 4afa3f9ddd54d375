-- renew starts the leases of many claims again. It makes no claim, and shortens
-- no lease.
--
-- KEYS  record, claims, order of each claim in turn, or the record of one claim
--       alone: see record.lua
-- ARGV  id, lease(14) of each claim in turn
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

-- renew answers nil if the claim is alive, and otherwise why not.
local function renew(id, lease)
  rec = call('GET', R)
  local ttl = sub(lease, 1, 8) * 1000000 + sub(lease, 9, 14)
  local ends = now + ttl
  if rec and sub(rec, 72, 71 + #id) == id and sub(rec, 1, 2) == '1C' then
    -- The usual case: alone in the line, and no mark.
    local start, flag = sub(rec, 3, 18), sub(rec, 51, 51)
    local old, last = start + sub(rec, 52, 59) * 1000000 + sub(rec, 60, 65), nil
    if flag == '.' then
      last = start + sub(rec, 66, 70)
      rec = rec .. fmt('%019.0f', last) .. '000' .. start .. start .. '00000000'
    elseif flag == '+' and sub(rec, -8) == '00000000' then
      last = tonumber(sub(rec, -62, -44))
    end
    if last and old > now then
      if old < ends then
        local px = 86400000 + math.ceil(((last > ends and last or ends) - now) / 1000)
        call('SET', R, '1C' .. stamp .. sub(rec, 19, 50) .. '+' .. lease .. sub(rec, 66), 'PX', fmt('%.0f', px))
      end
      return nil
    end
  end
  local l = load()
  local one = l.one
  if one then
    if one.id ~= id or one.lingers or one.expires <= now then return 'x' end
    one.expires = math.max(one.expires, ends)
    save(l)
    return nil
  end
  if not l.long or l.keep <= now then return 'x' end
  local old = call('ZSCORE', Z, 'e' .. id)
  if not old or tonumber(old) <= now then return resting(l, id) or 'x' end
  if tonumber(old) >= ends then return nil end
  if ends > l.keep then
    cover(l, ends)
    add(l, nil, 'e' .. id, ends)
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
