-- look returns a line, and takes out of it what has expired.
--
-- It answers now, last, size and how many hold, each with a blank behind it, then, each with its length and a colon in
-- front, the mark and for each claim, first for those that hold, its field, the claim and the reason of its notice.
return each(function()
  rules().fresh()
  local h, holds, texts = call('HMGET', H, 'last', 'size', 'mark'), 0, {}
  local function add(s) texts[#texts + 1] = #s .. ':' .. s end
  add(h[3] or '')
  r.each(function(key, field, claim)
    if key == H then holds = holds + 1 end
    add(field)
    add(claim)
    add(key == H and match(field, '^c:') and call('HGET', H, 'n:' .. sub(field, 3)) or '')
  end)
  return stamp .. ' ' .. (h[1] or '0') .. ' ' .. (h[2] or '0') .. ' ' .. holds .. ' ' .. table.concat(texts)
end)
