package mutants

// redis are the rules of its scripts, and of what reads their answers.
func redis() []Mutant {
	laws := func(topic string) []Test {
		return []Test{{Module: "redislock", Package: ".", Run: "^TestLaws$/^pipelines$/^(" + topic + ")$"}}
	}
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
	}
}

// sql are the rules of its steps.
func sql() []Mutant {
	on := func(folder, topic string) []Test {
		run := "^TestLaws$"
		if folder == "postgres" {
			run = "^TestLawsWithListen$"
		}
		return []Test{{Module: "verify", Package: "./" + folder, Run: run + "/^Run$/^(" + topic + ")$"}}
	}
	return []Mutant{
		{"PostgreSQL: a repeated Enter does not renew", "sqllock/schema/postgres.sql",
			"SET expires = greatest(expires, v_now + a_ttl), node", "SET node", on("postgres", "Lease")},
		{"PostgreSQL: a renewal brings back what has expired", "sqllock/schema/postgres.sql",
			"NOT lingering AND expires > fencelock_now();\n        IF FOUND", "NOT lingering;\n        IF FOUND", on("postgres", "Lease|Expiry")},
		{"PostgreSQL: a renewal shortens a lease", "sqllock/schema/postgres.sql",
			"SET expires = greatest(expires, fencelock_now() + v_one.ttl)", "SET expires = fencelock_now() + v_one.ttl", on("postgres", "Lease")},
		{"PostgreSQL: a Leave ends another's claim", "sqllock/schema/postgres.sql",
			"DELETE FROM fencelock_claim WHERE key = a_key AND id = a_id AND NOT lingering RETURNING", "DELETE FROM fencelock_claim WHERE key = a_key AND NOT lingering RETURNING", on("postgres", "Leave")},
		{"PostgreSQL: a Leave without a token leaves no tombstone", "sqllock/schema/postgres.sql",
			"PERFORM fencelock_lay(a_key, a_id, v_now + a_rest, false", "PERFORM fencelock_lay(a_key, a_id, v_now, false", on("postgres", "Leave")},
		{"PostgreSQL: who leaves lets in only the first", "sqllock/schema/postgres.sql",
			"            PERFORM pg_notify(lower('fencelock_') || v_claim.node, '');\n        END IF;\n", "            PERFORM pg_notify(lower('fencelock_') || v_claim.node, '');\n        END IF;\n        EXIT;\n", on("postgres", "Wake|Grant")},
		{"PostgreSQL: tokens are the clock alone", "sqllock/schema/postgres.sql",
			"greatest(v_line.last + 1, v_now, 1)", "greatest(v_now, 1)", on("postgres", "Token")},
		{"PostgreSQL: the kinds are not told apart", "sqllock/schema/postgres.sql",
			"IF (v_head.capacity = 1048576) <> (a_capacity = 1048576) THEN", "IF false THEN", on("postgres", "Kind")},
		{"MariaDB: a repeated Enter does not renew", "sqllock/schema/mysql.sql",
			"SET v_expires = GREATEST(v_expires, v_now + p_ttl);", "", on("mariadb", "Lease")},
		{"MariaDB: a renewal brings back what has expired", "sqllock/schema/mysql.sql",
			"        IF v_expires > v_now THEN\n            UPDATE", "        IF v_expires > 0 THEN\n            UPDATE", on("mariadb", "Lease|Expiry")},
		{"MariaDB: a Leave without a token leaves no tombstone", "sqllock/schema/mysql.sql",
			"CALL fencelock_v1_lay(p_key, p_id, v_now, v_now + p_ttl, 0", "CALL fencelock_v1_lay(p_key, p_id, v_now, v_now, 0", on("mariadb", "Leave")},
		{"MariaDB: a claim that does not fit is granted", "sqllock/schema/mysql.sql",
			"SET v_granted = COALESCE(v_sum, 0) + p_weight <= p_capacity;", "SET v_granted = 1;", on("mariadb", "Grant")},
		{"SQLite: a repeated Enter does not renew", "sqllock/query/sqlite/again.sql",
			"expires = max(expires, ?3)", "expires = expires", on("sqlite", "Lease")},
		{"SQLite: a renewal brings back what has expired", "sqllock/query/sqlite/renew.sql",
			"lingering = 0 AND clock = ?4 AND expires > ?5", "lingering = 0 AND clock = ?4", on("sqlite", "Lease|Expiry")},
		{"SQLite: a Leave ends another's claim", "sqllock/sqlite_leave.go",
			"in := v.mine != 0 && !c.lingering", "in := !c.lingering", on("sqlite", "Leave")},
		{"SQLite: whoever waits writes a mark", "sqllock/sqlite_leave.go",
			`if e.Mark != "" && c.granted > 0 {`, `if e.Mark != "" {`, on("sqlite", "Mark")},
		{"SQLite: a free lock is taken though its counter is ahead of the clock", "sqllock/query/sqlite/enter_free.sql",
			"(last >= ?2 OR mark IS NOT NULL)", "mark IS NOT NULL", []Test{{Module: "verify", Package: "./sqlite", Run: "."}}},
		{"SQL: with two sizes in line, the first that does not fit stops the others", "sqllock/line.go",
			"\tcase !a.mixed:\n\t\treturn false", "\tcase true:\n\t\treturn false", on("sqlite", "Grant|Wake")},
	}
}

// consensus are the recipes for etcd and ZooKeeper.
func consensus() []Mutant {
	etcd := func(run string) []Test { return []Test{{Module: "verify", Package: "./etcd", Run: run}} }
	zk := func(run string) []Test { return []Test{{Module: "zklock", Package: ".", Run: run}} }
	return []Mutant{
		{"etcd: a reader does not wait for writers that wait", "etcdlock/enter.go",
			"s.granted = s.blocker == \"\"", "s.granted = s.blocker == \"\" || classOf(c) == classReader", etcd("^TestLaws$/^Grant$")},
		{"etcd: the kinds are not told apart", "etcdlock/enter.go",
			"absent(line.rest(c.ID)), line.permits().none()}", "absent(line.rest(c.ID))}", etcd("^TestLaws$/^Kind$")},
		{"etcd: an ID that was laid to rest enters", "etcdlock/enter.go",
			"ifs := []clientv3.Cmp{absent(name), absent(line.rest(c.ID)), ", "ifs := []clientv3.Cmp{absent(name), ", etcd("^TestLaws$/^Leave$")},
		{"etcd: a lease that lives is taken for each of its claims", "etcdlock/renew.go",
			"\t\tcase kv == nil:\n", "\t\tcase kv == nil && t == nil:\n", etcd("^(TestDeletedKeyIsALossOfThatClaimAlone)$")},
		{"etcd: a Leave deletes whatever has its name", "etcdlock/leave.go",
			"ifs := []clientv3.Cmp{created(name, rev), absent(line.rest(t.ID))}", "ifs := []clientv3.Cmp{}", etcd("^TestLaws$/^(Leave|Linger|Break)$")},
		{"ZooKeeper: a reader watches only the one before it", "zklock/names.go",
			"\t\t\tif ms[j].weight == driver.RW {\n", "\t\t\tif true {\n", zk("Blockers")},
		{"ZooKeeper: who joins is not checked against the line that was read", "zklock/enter.go",
			"&zk.CheckVersionRequest{Path: line, Version: version},", "&zk.CheckVersionRequest{Path: line, Version: -1},", zk("TestRefusalAfterARaceWritesNothing|TestLaws")},
		{"ZooKeeper: a heartbeat proves the session, and not the claim", "zklock/renew.go",
			"\t\t\tops = append(ops, &zk.CheckVersionRequest{Path: nodes[i], Version: -1})\n", "\t\t\t_ = i\n", zk("TestDeletedNodeIsGoneAtTheNextRenew")},
		{"ZooKeeper: an Enter without an answer makes a second claim", "zklock/enter.go",
			"if e.p.unsure != nil {", "if false {", zk("Enter")},
		{"ZooKeeper: an ID that was laid to rest enters", "zklock/enter.go",
			"if x := e.b.rests[e.p.ref]; x != nil {", "if x := e.b.rests[e.p.ref]; x != nil && x == nil {", zk("^TestLaws$/^Leave$")},
		{"ZooKeeper: tokens have no room for a span", "zklock/names.go",
			"return czxid << spanBits, nil", "return czxid, nil", zk("^TestLaws$/^Token$")},
	}
}

// quorum are the rules of the majority.
func quorum() []Mutant {
	sim := []Test{{Module: ".", Package: "./quorumlock", Run: "Simulat"}, {Module: ".", Package: "./quorumlock", Run: "."}}
	return []Mutant{
		{"quorum: half of the nodes are a majority", "quorumlock/quorum.go",
			"len(members)/2 + 1", "len(members) / 2", sim},
		{"quorum: votes for different tokens are counted together", "quorumlock/tally.go",
			"\t\treturn a.ticket.Token\n\t})", "\t\treturn 1\n\t})", sim},
		{"quorum: a member grants ballots below its floor", "memlock/member.go",
			"if c.Ballot <= max(last, wall-skew) || ", "if ", sim},
		{"quorum: a member that lost its data grants at once", "memlock/member.go",
			"m.known, m.ready = true, now.mono+m.MaxTTL", "m.known, m.ready = true, now.mono", sim},
		{"quorum: an attempt that failed stays on the nodes", "quorumlock/enter.go",
			"\t\tb.retreat(ctx, cl, c, v)\n", "", sim},
		{"quorum: the answers of a late majority count", "quorumlock/tally.go",
			"return t, time.Since(v.sent) < validity(t.Left)", "return t, true", sim},
		{"quorum: one node keeps a claim alive", "quorumlock/renew.go",
			"func (h *heartbeat) lost(n int) bool { return h.gone[n] > len(h.b.nodes)-h.b.majority }", "func (h *heartbeat) lost(n int) bool { return h.gone[n] == len(h.b.nodes) }", sim},
		{"quorum: a claim is sent back to a node where an operator broke it", "quorumlock/renew.go",
			"if !errors.As(h.answers[n][i], &gone) || gone.Broken {", "if !errors.As(h.answers[n][i], &gone) {", sim},
	}
}
