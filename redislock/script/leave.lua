-- leave takes a claim out of the line of a key.
--
-- KEYS  see locks.lua
-- ARGV  1 id    2 eight characters that name this call
--   and, unless it is a plain leave,
--       3 mark or ''    4 linger in µs, 0, or -1: the claim leaves only if it waits
--       5 µs that a tombstone lasts, or 0
-- It answers '+', or 'x', 'xl', 'xb' reason if the claim is not in line, or 'h' if it holds and
-- was to leave only if it waits.
--
-- It works when the server is out of memory: see begin_write.
local width = 3
--include locks.lua

-- The claim is alone in the line, there is no mark, and its lease is not over. Leases are
-- compared in whole seconds: a claim near the end of its lease leaves below. The record stays
-- for a day, and a minute for tokens of its span that the clock has not overtaken. If memory is
-- short, this fails, and the claim leaves below.
for i = 1, args == 2 and locks or 0 do
  local id = ARGV[2 * i - 1]
  R = KEYS[3 * i - 2]
  rec = try('GET', R)
  if rec and type(rec) == 'string' and sub(rec, 126, 125 + #id) == id and sub(rec, 1, 6) == '1 held'
    and sub(rec, 41, 48) == '000 0000' then
    local age = clock[1] - (num(sub(rec, 87, 96)) or FAR)
    if age >= 0 and age < (num(sub(rec, 110, 117)) or 0) and (num(sub(rec, 50, 62)) or FAR) - clock[1] < 59
      and not try('SET', R, '1 idle ' .. sub(rec, 16, 39) .. ARGV[2 * i] .. sub(rec, 40, 109),
        'PX', '86460000').err then
      answers[i], done = '+', done + 1
    end
  end
end
if done == locks then return answers[2] and answers or answers[1] end

--include each.lua

--include simple.lua

-- leave_simple leaves a simple line in one of two cases. Either nobody waits. Or the claim is
-- first, holds alone, and all of the capacity is held; the next waits for all of the capacity,
-- and is granted. ends is when the tombstone ends, or 0. leave_simple reads one claim: that of
-- the next if it waits, else the one that leaves.
local function leave_simple(id, name, ends)
  if ends > expires + 0 then return nil end
  local waits, member, channel = held ~= total, 'e' .. id, ''
  if waits then
    local two = call('ZRANGE', Z, 0, 1)
    if held ~= capacity or two[1] ~= 'o' .. id then return nil end
    member = 'e' .. sub(two[2] or '', 2)
  end
  local claim = call('HGET', C, member) or ''
  local arrival, own, weight, length, at = string.match(claim, '^(%d+) %d+ 000 (%d+) (%d+) (%d+) %d+ ()', 46)
  if own ~= capacity or waits and weight ~= capacity
    or ends > 0 and call('HGET', C, 't' .. id) then return nil end
  if ends > tombs + 0 then tombs = fmt('%016d', ends) end
  if n == '1' and tombs + 0 <= now then return nil end

  if waits then
    upto, channel = arrival, sub(claim, at, at + length - 1)
    claim = sub(claim, 1, 20) .. fmt('%016d', now) .. ' granted' .. sub(claim, 45)
  else
    held = held - weight
  end
  -- What leaves goes last: C and Z that were empty in between would never expire.
  call('HSET', C, member, claim, 'r' .. left % 64, name)
  if ends > 0 then
    call('HSET', C, 't' .. id, 'l')
    call('ZADD', Z, fmt('%d', ends), 't' .. id)
    if ends < soonest + 0 then soonest = fmt('%016d', ends) end
  end
  call('ZREM', Z, 'o' .. id, 'e' .. id)
  call('HDEL', C, 'e' .. id)
  total, left = total - weight, left + 1
  save_simple(sub(rec, 50, 68), -1)
  if channel ~= '' and sub(member, 2, 2) ~= '~' then redis.pcall('PUBLISH', channel, 'g0:' .. sub(member, 2)) end
  return '+'
end

-- above reports whether text a is after text b, byte by byte: < would ask the server's locale.
local function above(a, b)
  for i = 1, #a do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return not y or x > y end
  end
  return false
end

-- leave_any leaves any other line. Its functions are made for the first lock that needs them.
local leave_any
local function make_leave_any()
--include line.lua
  return function(id, name, mark, linger, ends)
    local l = load()
    purge(l)
    local claim = find_claim(l, id)
    if not claim then
      local answer = tombstone(l, id) or 'x'
      if l.marker == id or remembers(l, name) then answer = '+' end
      if ends > 0 then
        lengthen(l)
        add_tombstone(l, id, ends, 'l')
        commit(l)
      else
        commit_purge(l)
      end
      return answer
    end
    if linger < 0 and (l.one or is_granted(claim)) then
      commit_purge(l)
      return 'h'
    end

    if mark ~= '' and (l.one or is_granted(claim)) then
      l.mark, l.marker = above(mark, l.mark) and mark or l.mark, id
    end
    remember(l, name)
    if l.one and ends == 0 then
      if linger > 0 then
        l.one.lingers, l.one.expires = true, now + linger
      else
        l.one, l.n = nil, 0
      end
      save(l)
      return '+'
    end
    if l.one then
      lengthen(l)
      commit(l)
      claim = call('HGET', C, 'e' .. id)
    end
    if linger > 0 then
      let_linger(l, id, claim, now + linger)
    else
      remove(l, id, claim)
    end
    if ends > 0 then
      add_tombstone(l, id, ends, 'l')
    end
    advance(l)
    commit(l)
    if linger > 0 then tell_first(l) end
    return '+'
  end
end

return each(function(id, name, mark, linger, tomb)
  begin_write()
  rec = call('GET', R)
  mark, linger, tomb = mark or '', tonumber(linger or 0), tonumber(tomb or 0)
  -- Tombstones end at full seconds, so that line.lua has to take them out once a second at most.
  local ends = tomb > 0 and now + tomb + 1000000 - (now + tomb) % 1000000 or 0
  local answer = mark == '' and linger == 0 and is_simple() and leave_simple(id, name, ends)
  if answer then return answer end
  leave_any = leave_any or make_leave_any()
  return leave_any(id, name, mark, linger, ends)
end)
