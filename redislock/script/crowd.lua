-- crowd.lua reads the record of a line that most contended locks have: all of its
-- claims have one capacity, none of them nor C and Z can have expired, the tokens are
-- not ahead of that, and so are numbers of Lua without loss, and there is neither a mark
-- nor an id at rest. It is put where scripts say --include, in front of the long way, which
-- takes all other lines and finds the same answers for these.
local total, held, upto, arrivals, soonest, keep, capacity, n, left, ring
if C and rec and sub(rec, 1, 2) == '1L' then
  local rest
  total, held, upto, arrivals, soonest, keep, rest, capacity, n, left, ring = string.match(rec,
    '^0000000 %d+ (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+):(%d+) (%d+);(.*)$', 22)
  if n and (#soonest + #keep + #rest ~= 48 or #ring ~= 32 or soonest + 0 <= now or keep + 0 <= now or rest + 0 > now
    or sub(rec, 3, 21) > '000' .. keep) then
    n = nil
  end
end

-- crowded writes the record. The line stays as long as its longest claim, as before, and
-- the record for a day more, as save has it. The span that was drawn last is shorter than
-- the tenth of a second added.
local function crowded(last, joined)
  local n = fmt('%d', n + joined)
  call('SET', R, '1L' .. last .. '0000000 ' .. n .. ' ' .. fmt('%d', total) .. ' ' .. held .. ' ' .. upto .. ' ' .. arrivals
    .. ' ' .. soonest .. ' ' .. keep .. ' 0000000000000000 ' .. capacity .. ':' .. n .. ' ' .. left .. ';' .. ring,
    'PX', fmt('%d', 86400100 + (keep - now) / 1000))
end
