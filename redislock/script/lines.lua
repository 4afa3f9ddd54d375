-- lines returns one line as it is, and changes nothing. A replica refuses it: see begin_write.
--
-- KEYS  see locks.lua
-- It answers {now in µs, largest token drawn, mark, and in order of arrival of each
-- claim: id, when it ends, the claim as record.lua keeps it in C}.
local width = 3
--include locks.lua
--include each.lua

--include record.lua

return each(function()
  begin_write()
  rec = call('GET', R)
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
end)
