-- member judges ballots. It stands before enter and initialise for members of a quorum.
--
-- M is '1 ' born ' ' history(40) ' ' run(40) ' ' text: since when this server knows that it is a member, the ids of its
-- replication and its run by then (with 'r' as its last digit if it had replicas), and what the members agreed on.
--
-- The quarantine begins when a server was started again, or was a replica meanwhile: it may have lost what it had
-- acknowledged. A master that gets its first replica, or has lost its last for long, has another history too, and a
-- second id of zeros. Durable excuses a restart, but not of a server that had replicas: it may be one of them.
-- Scripts have no clock but the server's, so a quarantine begins with a ballot within the skew of that.
local M

local function read_member()
  local known = call('GET', M)
  if not known then return end
  local born, history, run, agreed = match(known, '^1 (%d+) (%x*) (%w*) (.*)$')
  if not born then error('FENCELOCK DAMAGED ' .. M, 0) end
  return born + 0, history, run, agreed
end

-- this_run returns the two ids of a master, and whether it was promoted.
local function this_run()
  local state = call('INFO', 'replication')
  local run = match(call('INFO', 'server'), 'run_id:(%x+)') or ''
  if match(state, 'repl_backlog_active:1') then run = sub(run, 1, 39) .. 'r' end
  return match(state, 'role:master\r') and match(state, 'master_replid:(%x+)') or '', run,
    match(state, 'master_replid2:0*[1-9a-f]')
end

local function write_member(born, history, run, agreed)
  call('SET', M, '1 ' .. text(born) .. ' ' .. history .. ' ' .. run .. ' ' .. agreed)
end

-- judge returns nil and the token of a ballot, or a refusal: 'b' last: one above last may be granted; 'q' µs: none is
-- for that long; 'c' µs ' ' ahead: nor for that long after a ballot within the skew of this clock, which is so far
-- from the client's; 'm' text: this node has agreed on something else. skew and quarantine are µs, durable is '1'
-- if a restart forgets nothing, and clock is that of the client if the claim re-enters, or ''.
local function judge(last, held, ballot, skew, quarantine, durable, agreed, clock)
  M, clock = match(H, '^(.*){') .. '@member', clock or ''
  local born, history, run, known = read_member()
  if born and known ~= agreed then return 'm' .. known end
  local h, this, promoted = this_run()
  if not born or run ~= this or history ~= h then
    local excused = durable == '1' and sub(run or '', 40) ~= 'r'
    if not born or sub(run, 1, 39) ~= sub(this, 1, 39) and not excused or history ~= h and promoted then
      local ahead = now - (clock ~= '' and clock or ballot)
      if math.abs(ahead) > skew + 0 then return 'c' .. quarantine .. ' ' .. text(math.abs(ahead)) end
      born = now
    end
    write_member(born, h, this, agreed)
  end
  if now < born + quarantine then return 'q' .. text(born + quarantine - now) end
  local n = ballot + 0
  local ok = n > math.max(last, now - skew) and n <= math.max(last + 65535, now + skew)
  if clock ~= '' then ok = n > last + 0 or n == last + 0 and held == 0 end
  if not ok then return 'b' .. text(math.max(last, now)) end
  return nil, ballot
end
