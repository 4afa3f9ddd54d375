-- leave takes a claim out of its line.
--
-- ARGV  1 id  2 how long it lingers, 0, or -1: only if it waits  3 how long its tombstone stays, or 0  4 mark, or ''
-- It answers '+', or what gone answers if it is not in line, or 'h' if it holds and was to leave only if it waits.
return each(function(id, linger, tomb, mark)
  local field = 'c:' .. id
  linger, tomb, mark = linger or '0', tomb or '0', mark or ''
  local h = call('HMGET', H, field, 'held', 'waits', 'format')
  if linger == '0' and tomb == '0' and mark == '' and h[1] and not h[3] and h[4] == '2' then
    local ends, weight = match(h[1], '^(%d+) %d+ %d+ %d+ (%d+)')
    if weight == h[2] and ends + 0 > now then
      call('HDEL', H, field, 'm:' .. id, 'n:' .. id, 'held', 'size', 'soonest') -- nobody else is here
      return '+'
    end
  end
  rules().fresh()
  local key, _, claim = r.find(id)
  if key == H and linger == '-1' then return 'h' end
  local answer = (claim or call('HGET', H, 'by') == id) and '+' or r.gone(id)
  if tomb ~= '0' then r.bury(id, 'l', tomb) end
  if not claim then return answer end
  if mark ~= '' and key == H then
    local function bytes(s) -- as numbers: of letters > would ask the server's locale
      return (string.gsub(s, '.', function(c) return fmt('%03d', string.byte(c)) end))
    end
    local old = call('HGET', H, 'mark') or ''
    call('HSET', H, 'by', id, 'mark', bytes(mark) > bytes(old) and mark or old)
    call('PERSIST', H)
  end
  drop(key, field, claim, linger + 0)
  return answer
end)
