-- member.lua keeps what a server remembers of being a member. It is put where other
-- scripts say --include, which have set M, now and call.

-- read_member returns since when, which run noticed it, and what was agreed on; nothing
-- if the server does not remember to be a member.
local function read_member()
  local text = call('GET', M)
  if not text then return end
  local born, run, agreed = string.match(text, '^1 (%d+) (%x*) (.*)$')
  if not born then error('FENCELOCK DAMAGED ' .. M, 0) end
  return tonumber(born), run, agreed
end

local function this_run()
  return string.match(call('INFO', 'server'), 'run_id:(%x+)') or ''
end

local function write_member(born, agreed)
  call('SET', M, '1 ' .. fmt('%016.0f', born) .. ' ' .. this_run() .. ' ' .. agreed)
end

-- membership returns nil if ballots are granted, or what to answer. A server that was
-- started again may have lost what it had acknowledged last.
local function membership(lasts, durable, agreed)
  local born, run, text = read_member()
  if born and text ~= agreed then return 'm' .. text end
  if not born then
    born = now
    write_member(born, agreed)
  elseif run ~= this_run() then
    if durable ~= '1' then born = now end
    write_member(born, agreed)
  end
  if now < born + lasts then return 'q' .. fmt('%.0f', born + lasts - now) end
end
