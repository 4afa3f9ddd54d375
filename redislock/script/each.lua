-- each.lua is put where scripts say --include, when they have to make functions.

-- begin_write makes a write that changes nothing and needs no memory. Redis asks a script
-- at its first write alone whether memory is short, so all that follows works then. A
-- replica refuses the write: what it knows of the lock may be old.
local written
local function begin_write()
  if Z and not written then
    call('ZREM', Z, '')
    written = true
  end
end

-- each answers what f answers for each lock that has no answer yet. f finds the keys of that
-- lock in R, C, Z and M; M is nil where width is 3.
local function each(f)
  for i = 1, locks do
    if not answers[i] then
      R, C, Z, M = unpack(KEYS, (i - 1) * width + 1, i * width)
      local ok, answer = pcall(f, unpack(ARGV, (i - 1) * args + 1, i * args))
      if not ok then
        if type(answer) == 'table' then answer = answer.err end
        local at = find(answer, 'READONLY You', 1, true)
        if at then return {err = sub(answer, at)} end
        answer = 'e' .. answer
      end
      answers[i] = answer
    end
  end
  return answers[2] and answers or answers[1]
end
