-- contended.lua reads the record of a line that most contended locks have: all of its
-- claims have one capacity, none of them nor C and Z can have expired, the tokens are
-- not ahead of that, and so are numbers of Lua without loss, and there is no mark. No
-- tombstone has expired either. It is put where scripts say --include. line.lua takes all
-- other lines, and finds the same answers for these. A hand-over costs the server 14 µs this
-- way, and 36 µs by line.lua (BenchmarkHandOver).
local total, held, upto, arrivals, soonest, expires, tombs, capacity, n, left

-- is_contended reads the record, and reports whether it is of such a line.
local function is_contended()
  if not C or not rec or sub(rec, 1, 6) ~= '1 line' or sub(rec, 41, 48) ~= '000 0000' then return false end
  total, held, upto, arrivals, soonest, expires, tombs, capacity, n, left = string.match(rec,
    '^%d+ (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+):(%d+) (%d+) $', 110)
  return n and #soonest + #expires + #tombs == 48 and soonest + 0 > now and expires + 0 > now
    and sub(rec, 50, 68) <= '000' .. expires and sub(rec, 104, 108) == '00000'
end

-- save_contended writes the record. The line stays as long as its longest claim, as before, and
-- the record for a day more, as save has it. The span that was drawn last is shorter than
-- the tenth of a second added.
local function save_contended(last, joined)
  local n = fmt('%d', n + joined)
  call('SET', R, sub(rec, 1, 49) .. last .. sub(rec, 69, 109) .. n .. ' ' .. fmt('%d', total) .. ' ' .. held
    .. ' ' .. upto .. ' ' .. arrivals .. ' ' .. soonest .. ' ' .. expires .. ' ' .. tombs .. ' '
    .. capacity .. ':' .. n .. ' ' .. left .. ' ', 'PX', fmt('%d', 86400100 + (expires - now) / 1000))
end
