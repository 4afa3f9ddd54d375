-- look returns a line, and takes out of it what has expired.
--
-- It answers {now, last, mark, size, how many hold, and of each claim, first of those that hold: field, claim}.
return each(function()
  rules().fresh()
  local h = call('HMGET', H, 'last', 'mark', 'size')
  local answer = {stamp, h[1] or '0', h[2] or '', h[3] or '0', 0}
  r.each(function(key, field, claim)
    if key == H then answer[5] = answer[5] + 1 end
    answer[#answer + 1], answer[#answer + 2] = field, claim
  end)
  return answer
end)
