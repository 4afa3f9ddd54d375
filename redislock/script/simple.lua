-- simple.lua reads the record of a simple line, as most are:
--
--   - There is no mark.
--   - Nothing in C and Z can have expired, nor C and Z themselves.
--   - No token is later than the time when C and Z expire. So tokens are numbers of Lua
--     without loss.
--
-- It is put where scripts say --include. line.lua takes all other lines, and finds the same
-- answers for these. A hand-over costs the server 14 µs this way, and 36 µs by line.lua
-- (BenchmarkHandOver). A free lock with tombstones costs half (BenchmarkTombstonePair).
local n, total, held, upto, arrivals, soonest, expires, tombs, capacity, left

-- is_simple reads the record, and reports whether it is of such a line.
local function is_simple()
  if not C or not rec or sub(rec, 1, 6) ~= '1 line' or sub(rec, 41, 48) ~= '000 0000' then return false end
  n, total, held, upto, arrivals, soonest, expires, tombs, capacity, left = string.match(rec,
    '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) $', 110)
  return n and #soonest + #expires + #tombs == 48 and soonest + 0 > now and expires + 0 > now
    and sub(rec, 50, 68) <= '000' .. expires and sub(rec, 104, 108) == '00000'
end

-- save_simple writes the record. The line stays as long as its longest claim, as before, and
-- the record for a day more, as save has it. The span that was drawn last is shorter than
-- the tenth of a second added.
local function save_simple(last, joined)
  n = n + joined
  call('SET', R, sub(rec, 1, 49) .. last .. sub(rec, 69, 109) .. n .. ' ' .. fmt('%d', total) .. ' ' .. held
    .. ' ' .. upto .. ' ' .. arrivals .. ' ' .. soonest .. ' ' .. expires .. ' ' .. tombs .. ' '
    .. capacity .. ' ' .. left .. ' ',
    'PX', fmt('%d', 86400100 + (expires - now) / 1000))
end
