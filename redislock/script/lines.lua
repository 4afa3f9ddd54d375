-- lines returns one line as it is, and changes nothing.
--
-- KEYS  record, claims, order, or the record alone: see record.lua
-- It answers {now in µs, largest token drawn, mark, and in order of arrival of each
-- claim: id, when it ends, the claim as record.lua keeps it in C}.
--
-- It begins with a write that does nothing. A replica refuses that: what it knows of
-- the lock may be old.
local call, sub, find, fmt = redis.call, string.sub, string.find, string.format
local R, C, Z = KEYS[1], KEYS[2], KEYS[3]
if Z then call('ZREM', Z, '') end
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local rec = call('GET', R)

--include record.lua

local l = load()
local one, answer = l.one, {fmt('%.0f', now), l.last, l.mark}
local function answer_claim(id, ends, claim)
  answer[#answer + 1] = id
  answer[#answer + 1] = ends
  answer[#answer + 1] = claim
end
if one then
  answer_claim(one.lingers and '~' .. one.id or one.id, fmt('%.0f', one.expires),
    claim_text(one.token, one.since, 'granted', 1, one.more, '', one.details))
elseif l.long and now < l.expires then
  local ends, order = {}, call('ZRANGE', Z, 0, -1, 'WITHSCORES')
  for i = 1, #order, 2 do ends[order[i]] = order[i + 1] end
  for i = 1, #order, 2 do
    if sub(order[i], 1, 1) == 'o' then
      local id = sub(order[i], 2)
      answer_claim(id, ends['e' .. id] or damaged(), call('HGET', C, 'e' .. id) or damaged())
    end
  end
end
return answer
