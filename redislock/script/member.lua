-- member.lua keeps what a server remembers of being a member. It is put where other
-- scripts say --include, which have set M, find, fmt, now and call.
--
-- The key M is '1 ' born(16) ' ' history(40) ' ' run(40) ' ' text: since when this server
-- knows that it is a member, the ids of its replication and its run when it noticed that,
-- and what the members have agreed on. The last digit of run is 'r' if the server had
-- replicas by then. The key does not expire.
--
-- A server may have lost what it had acknowledged last if it was started again, and if
-- it was a replica meanwhile. Each start has a run id of its own. A replication id
-- stands for more, and costs less to ask for: no two starts of a master have the same,
-- and no two promotions. But a master changes it as well when its first replica comes,
-- and when the last one has been gone for repl-backlog-ttl. Then nothing is lost, and
-- its second id is all zeros, where one that was promoted has the one of before.
--
-- Durable excuses a restart that loses nothing. A replica has this key too, and its data may
-- lag: once promoted it has a second id, whatever its run. A replica that is started again as
-- a master has none. It cannot be told from its master that is started again, so nothing
-- excuses the restart of a server that had replicas. Redis 7 and later has a second id after
-- a restart from a dump, too, which is not durable either.
--
-- A quarantine is measured by the server's clock: scripts have no other. A clock that is wrong
-- when the server boots, and is stepped later, would end the quarantine at once. So it begins
-- with a ballot within the skew of that clock.
--
-- Source: redis, replication.c (changeReplicationId, shiftReplicationId).

-- read_member returns since when, in which history and which run, and what was agreed
-- on; nothing if the server does not remember to be a member.
local function read_member()
  local text = call('GET', M)
  if not text then return end
  local born, history, run, agreed = string.match(text, '^1 (%d+) (%x*) (%w*) (.*)$')
  if not born then error('FENCELOCK DAMAGED ' .. M, 0) end
  return tonumber(born), history, run, agreed
end

-- this_run returns the two ids of a master, and whether it was promoted.
local function this_run()
  local state = call('INFO', 'replication')
  local history = find(state, 'role:master\r', 1, true) and string.match(state, 'master_replid:(%x+)')
  local run = string.match(call('INFO', 'server'), 'run_id:(%x+)') or ''
  if find(state, 'repl_backlog_active:1', 1, true) then run = sub(run, 1, 39) .. 'r' end
  return history or '', run, find(state, 'master_replid2:0*[1-9a-f]')
end

local function write_member(born, history, run, agreed)
  call('SET', M, '1 ' .. fmt('%016.0f', born) .. ' ' .. history .. ' ' .. run .. ' ' .. agreed)
end

-- membership returns nil if ballots are granted, or what to answer. ballot is what the clock
-- of the caller shows.
local function membership(lasts, skew, durable, agreed, ballot)
  local born, history, run, text = read_member()
  if born and text ~= agreed then return 'm' .. text end
  local h, r, promoted = this_run()
  if not born or run ~= r or history ~= h then
    local excused = durable == '1' and sub(run or '', 40) ~= 'r'
    if not born or sub(run, 1, 39) ~= sub(r, 1, 39) and not excused or history ~= h and promoted then
      if now < ballot - skew or now > ballot + skew then
        return 'c' .. fmt('%.0f %.0f', lasts, now - ballot)
      end
      born = now
    end
    write_member(born, h, r, agreed)
  end
  if now < born + lasts then return 'q' .. fmt('%.0f', born + lasts - now) end
end
