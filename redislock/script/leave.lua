-- leave takes a claim out of its line.
--
-- ARGV  1 id  2 mark, or ''  3 how long it lingers, 0, or -1: only if it waits  4 how long its tombstone stays, or 0
-- It answers '+', or 'x', 'xl', 'xa' or 'xb' reason if it is not in line, or 'h' if it holds and was to leave only if
-- it waits.
return each(function(id, mark, linger, tomb)
  local h = call('HMGET', H, 'c:' .. id, 'held', 'soonest', 'waits', 'mark', 'by', 'format')
  if linger == '0' and mark == '' and tomb == '0' and h[1] and h[3] + 0 > now and not h[4] and h[7] == '2'
    and match(h[1], '^%d+ %d+ %d+ %d+ (%d+)') == h[2] then
    call('HDEL', H, 'c:' .. id, 'm:' .. id, 'n:' .. id, 'held', 'size', 'soonest') -- nobody else is here
    return '+'
  end
  rules().fresh()
  local key, field, claim = r.find(id)
  if key == H and linger == '-1' then return 'h' end
  local answer = (claim or h[6] == id) and '+' or r.gone(id)
  if tomb ~= '0' then r.bury(id, 'l', tomb) end
  if not claim then return answer end
  if mark ~= '' and key == H then
    local function bytes(s) -- as numbers: of letters > would ask the server's locale
      return (string.gsub(s, '.', function(c) return fmt('%03d', string.byte(c)) end))
    end
    call('HSET', H, 'by', id, 'mark', bytes(mark) > bytes(h[5] or '') and mark or h[5])
    call('PERSIST', H)
  end
  drop(key, field, claim, linger + 0)
  return answer
end)
