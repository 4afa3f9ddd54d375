package mutants

// redis are the rules of its scripts, and of what reads their answers.
func redis() []Mutant {
	laws := func(topic string) []Test {
		return []Test{{Module: "redislock", Package: ".", Run: "^TestLaws$/^pipelines$/^(" + topic + ")$"}}
	}
	inRedis := func(run string) []Test { return []Test{{Module: "redislock", Package: ".", Run: run}} }
	return []Mutant{
		{"Redis: a repeated Enter does not renew", "redislock/script/enter.lua",
			"  one.expires = math.max(one.expires, expires)\n  save(l)", "  save(l)", laws("Lease")},
		{"Redis: anybody's Leave ends the claim that is alone", "redislock/script/leave.lua",
			"and rec and sub(rec, 72, 71 + #id) == id and", "and rec and", laws("Leave")},
		{"Redis: a Leave ends another's claim", "redislock/script/leave.lua",
			"if one and (one.id ~= id or one.lingers) then", "if one and one.lingers then", laws("Leave")},
		{"Redis: a Leave without a token leaves no tombstone", "redislock/script/leave.lua",
			"  if rest > 0 then\n    lengthen(l)\n", "  if false then\n    lengthen(l)\n", laws("Leave")},
		{"Redis: whoever waits writes a mark", "redislock/script/leave.lua",
			"if mark ~= '' and (one or is_granted(claim)) then", "if mark ~= '' then", laws("Mark")},
		{"Redis: who leaves lets nobody in", "redislock/script/leave.lua",
			"advance(l)\ncommit(l)\nif linger > 0 then", "commit(l)\nif linger > 0 then", laws("Wake|Grant")},
		{"Redis: the kinds are not told apart", "redislock/script/enter.lua",
			"if (largest(l) == RW) ~= (capacity == RW) then", "if false then", laws("Kind")},
		{"Redis: who is granted is not told", "redislock/script/line.lua",
			"  ids[#ids + 1] = id\nend", "end", laws("Wake")},
		{"Redis: a line of one capacity is gone through too shortly", "redislock/script/line.lua",
			"      if sum >= top then return end\n    end\n    step", "      if true then return end\n    end\n    step", laws("Wake|Grant")},
		{"Redis: a refused claim waits", "redislock/script/enter.lua",
			"if ARGV[3] == '1' and weight", "if false and weight", laws("Grant")},
		{"Redis: a claim that does not fit is granted", "redislock/script/line.lua",
			"local granted = weight + l.total <= capacity", "local granted = true", laws("Grant")},
		{"Redis: a renewal brings back what has expired", "redislock/script/renew.lua",
			"if one.id ~= id or one.lingers or one.expires <= now then return 'x' end", "if one.id ~= id or one.lingers then return 'x' end", laws("Lease|Expiry")},
		{"Redis: a renewal in a crowd brings back what has expired", "redislock/script/renew.lua",
			"if not old or tonumber(old) <= now then return resting(l, id) or 'x' end", "if not old then return resting(l, id) or 'x' end", inRedis("RenewalInACrowdBrings")},
		{"Redis: a renewal shortens a lease", "redislock/script/renew.lua",
			"      if old < ends then\n", "      if true then\n", laws("Lease")},
		{"Redis: a renewal of a claim that is not there succeeds", "redislock/script/renew.lua",
			"if not l.long or l.keep <= now then return 'x' end", "if not l.long or l.keep <= now then return nil end", inRedis("Flushed|Gone")},
		{"Redis: tokens are the clock alone", "redislock/script/line.lua",
			"if token < clock then token = clock end", "token = clock", laws("Token")},
		{"Redis: a free lock is taken though its counter is ahead of the clock", "redislock/script/enter.lua",
			"  if last and last < now then ring", "  if last then ring", append(laws("Token"), inRedis("TestCounter")...)},
		{"Redis: tokens are numbers of Lua", "redislock/script/line.lua",
			"  local low = tonumber(sub(token, 11, 19)) + k\n", "  if true then return fmt('%019.0f', tonumber(token) + k) end\n  local low = tonumber(sub(token, 11, 19)) + k\n", inRedis("Token")},
		{"Redis: a span is not reserved", "redislock/script/line.lua",
			"local last = plus(token, more)", "local last = token", append(laws("Token"), inRedis("Token")...)},
		{"Redis: what expires lets nobody in", "redislock/script/line.lua",
			"    return\n  end\n  advance(l)\nend\n\n-- plus", "    return\n  end\nend\n\n-- plus", laws("Expiry|Wake")},
		{"Redis: a break matches the first token only", "redislock/script/break.lua",
			"return from <= token and token <= plus(from, span - 1)", "return from == token", laws("Break")},
		{"Redis: a claim that was broken enters again", "redislock/script/line.lua",
			"  add(l, why, member, ends)\n", "  if why == 'l' then add(l, why, member, ends) end\n", laws("Break")},
		{"Redis: a place that lingers is free", "redislock/script/leave.lua",
			"  haunt(l, id, claim, now + linger)\n", "  remove(l, id, claim)\n", laws("Linger")},
		{"Redis: a message that was lost is not made up for", "redislock/await.go",
			"limit := time.Now().Add(fallback - fallback/8 + rand.N(fallback/4))", "limit := time.Now().Add(time.Hour + rand.N(fallback/4))", inRedis("LostPush")},
		{"Redis: an interrupted subscription is not made up for", "redislock/await.go",
			"case w.stale || epoch != 0 && w.epoch != epoch:", "case w.stale || epoch != 0 && false:", inRedis("Interruption")},
		{"Redis: a member takes ballots below what the clock has passed", "redislock/script/ballot.lua",
			"ok = ballot > larger(l.last, fmt('%019.0f', now - ARGV[6]))", "ok = ballot > l.last", member("Redis")},
		{"Redis: a member takes ballots from far ahead", "redislock/script/ballot.lua",
			"\n      and ballot <= larger(plus(l.last, 65535), fmt('%019.0f', now + ARGV[6]))", "", member("Redis")},
	}
}

// member are the laws of a store that takes ballots, as a node of a quorum.
func member(store string) []Test {
	return []Test{{Module: "verify", Package: "./quorum", Run: "^Test" + store + "MemberKeepsTheLaws$"}}
}
