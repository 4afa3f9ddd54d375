package mutants

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
		{"etcd: a lease that was granted before counts from the put", "etcdlock/enter.go",
			"left := l.left(sent)", "left := max(l.left(sent), l.ttl)", etcd("TestLeftCountsFromTheLastKeepAlive")},
		{"etcd: readers wait for one another", "etcdlock/enter.go",
			"blockers := line.writers() // of a reader", "blockers := line.claims()", etcd("^TestLaws$/^(Wake|Grant)$")},
		{"etcd: a claim that does not fit on a semaphore is granted", "etcdlock/enter.go",
			"\t\tif !s.granted {\n\t\t\treturn s, false, s.refusal(c, len(all))\n\t\t}\n", "", etcd("^TestLaws$/^(Grant|Wake)$")},
		{"etcd: a watch that is lost is not made up for", "etcdlock/await.go",
			"const maxAwait = time.Second", "const maxAwait = time.Hour", etcd("TestLostWatchIsMadeUpForByReading")},
		{"ZooKeeper: a reader watches only the one before it", "zklock/names.go",
			"\t\t\tif ms[j].weight == driver.RW {\n", "\t\t\tif true {\n", zk("Blockers")},
		{"ZooKeeper: who joins is not checked against the line that was read", "zklock/enter.go",
			"&zk.SetDataRequest{Path: line, Version: version},", "&zk.SetDataRequest{Path: line, Version: -1},", zk("TestRefusalAfterARaceWritesNothing|TestLaws")},
		{"ZooKeeper: a heartbeat proves the session, and not the claim", "zklock/renew.go",
			"\t\t\tops = append(ops, &zk.CheckVersionRequest{Path: nodes[i], Version: -1})\n", "\t\t\t_ = i\n", zk("TestDeletedNodeIsGoneAtTheNextRenew")},
		{"ZooKeeper: an Enter without an answer makes a second claim", "zklock/enter.go",
			"if e.p.unsure != nil {", "if false {", zk("Enter")},
		{"ZooKeeper: an ID that was laid to rest enters", "zklock/enter.go",
			"if x := e.b.rests[e.p.ref]; x != nil {", "if x := e.b.rests[e.p.ref]; x != nil && x == nil {", zk("^TestLaws$/^Leave$")},
		{"ZooKeeper: a node of an ended session is taken for one of this", "zklock/enter.go",
			"if m != nil && m.owner == e.s.id {", "if m != nil {", zk("NodeOfAnotherSession")},
		{"ZooKeeper: the kinds are not told apart", "zklock/enter.go",
			"\t\tif l.members[i].semaphore() != (e.c.Capacity != driver.RW) {\n\t\t\treturn driver.Ticket{}, e.withdraw", "\t\tif l.members[i].semaphore() != (e.c.Capacity != driver.RW) && false {\n\t\t\treturn driver.Ticket{}, e.withdraw", zk("^TestLaws$/^Kind$")},
		{"ZooKeeper: a claim that is refused is written first", "zklock/enter.go",
			"if sum <= e.c.Capacity {", "if sum > 0 {", zk("RefusedClaimWrites|RefusalAfter")},
		{"ZooKeeper: tokens have no room for a span", "zklock/names.go",
			"return czxid << spanBits, nil", "return czxid, nil", zk("^TestLaws$/^Token$")},
	}
}
