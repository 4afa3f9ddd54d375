-- look returns a line, and takes out of it what has expired.
--
-- It answers {now, last, mark, size, how many hold, and of each claim, first of those that hold: field, claim, and the
-- reason if it is under notice}.
return each(function()
  rules().fresh()
  local h = call('HMGET', H, 'last', 'mark', 'size')
  local answer = {stamp, h[1] or '0', h[2] or '', h[3] or '0', 0}
  r.each(function(key, field, claim)
    if key == H then answer[5] = answer[5] + 1 end
    local reason = key == H and match(field, '^c:') and call('HGET', H, 'n:' .. sub(field, 3)) or ''
    answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = field, claim, reason
  end)
  return answer
end)
