package mutants

// The tests that are called often.
var (
	bubble  = Test{Module: "verify", Package: "./bubble", Run: "RandomPrograms", Args: []string{"-rapid.checks=1500", "-rapid.nofailfile", "-rapid.shrinktime=1ms"}}
	calm    = Test{Module: "verify", Package: "./bubble", Run: "GoodNetwork", Args: []string{"-rapid.checks=1500", "-rapid.nofailfile", "-rapid.shrinktime=1ms"}}
	inRoot  = Test{Module: ".", Package: ".", Run: "."}
	memLaws = Test{Module: ".", Package: "./memlock", Run: "."}
)

func rooted(run string) Test { return Test{Module: ".", Package: ".", Run: run} }

// core are the rules that the core keeps on every backend.
func core() []Mutant {
	return []Mutant{
		{"a lease is counted from the answer, not from the sending", "claim.go",
			"deadline := sent + believed(left)", "deadline := now + believed(left)", []Test{rooted("CountsFromSending"), bubble}},
		{"a lease is believed to the last moment, without a margin", "claim.go",
			"return int64(d - d/100 - 2*time.Millisecond)", "return int64(d)", []Test{rooted("Deadline"), inRoot}},
		{"a cancelled call takes its claim from no line", "line.go",
			"\t\tc.quit(cl, driver.Exit{})\n", "", []Test{bubble, inRoot}},
		{"an Enter without an answer is taken for none", "line.go",
			"\tdefault:\n\t\tcl.unsure = true\n\t\treturn err", "\tdefault:\n\t\treturn err", []Test{bubble, inRoot}},
		{"an ID whose Enter may still arrive is not laid to rest", "leave.go",
			"\tif cl.unsure {\n\t\tt.Token = 0", "\tif false {\n\t\tt.Token = 0", []Test{bubble, inRoot}},
		{"a waiting claim that expired is not taken out when its caller enters anew", "line.go",
			"c.oweLeave(old, c.clock.now(), driver.Exit{})", "_ = old", []Test{rooted("ExpiredInLine")}},
		{"a claim that enters anew keeps its ID", "line.go",
			"\tcl.t = driver.Ticket{Claim: cl.t.Claim}\n\tcl.t.ID = c.ids.draw()\n", "\tcl.t = driver.Ticket{Claim: cl.t.Claim}\n", []Test{rooted("EntersAgain"), bubble}},
		{"an old grant is given without being renewed", "line.go",
			"cl.deadline.Load()-now >= 2*believed(t.TTL)/3", "cl.deadline.Load()-now >= 0", []Test{rooted("OldGrant"), inRoot}},
		{"a FixedLease that waited keeps the lease of a waiter", "line.go",
			"relength := r.hold > 0 && r.waits && !cl.whole", "relength := false", []Test{rooted("FixedLease"), inRoot}},
		{"a handed-on claim has the token of the one before", "lease.go",
			"token: fence.Token(cl.t.Token + cl.used)", "token: fence.Token(cl.t.Token)", []Test{calm, inRoot}},
		{"a claim is handed on beyond its span", "gate.go",
			"cl.used >= cl.t.Span || ", "", []Test{calm, inRoot}},
		{"a claim is handed on for longer than a lease", "gate.go",
			"now-cl.since >= int64(cl.t.TTL) ||\n\t\t", "\n\t\t", []Test{rooted("AgeOfOneLease"), inRoot}},
		{"a claim is handed on with little of its lease left", "gate.go",
			"cl.atRisk || cl.deadline.Load()-now < lease/2 ||", "lease < 0 ||", []Test{rooted("UnhealthyLease"), inRoot}},
		{"a hand-off that crossed the end of its context is kept", "gate.go",
			"\t\tw.lease.Release(w.ctx)\n", "", []Test{rooted("CrossesACancellation")}},
		{"a release wakes nobody at the gate", "lease.go",
			"\t\tw.claim, cl.gate = nil, nil\n\t\tc.turn(w)\n", "\t\tw.claim, cl.gate = nil, nil\n", []Test{calm, inRoot}},
		{"a loss wakes nobody at the gate", "renew.go",
			"\tc.gateLost(cl)\n}", "}", []Test{rooted("GateOpens"), bubble}},
		{"one of several handles releases the grant", "lease.go",
			"if len(g.leases) > 0 { // others still share the grant", "if false { // others still share the grant", []Test{calm, rooted("Reentrant")}},
		{"whoever would wait for itself waits", "lease.go",
			"case !r.reentrant || r.weight > cl.t.Weight:", "case false:", []Test{calm, rooted("Deadlock")}},
		{"Err does not look at the clock", "lease.go",
			"if now < min(cl.deadline.Load(), l.g.endAt) {", "if now >= 0 {", []Test{rooted("TestErr"), inRoot}},
		{"MaxHold ends nothing", "renew.go",
			"\tcase now < min(deadline, cl.endAt):", "\tcase now < deadline:", []Test{rooted("MaxHold")}},
		{"what was lost is not given back to the store", "renew.go",
			"c.oweLeave(cl, max(cl.over, now), driver.Exit{})", "c.plan(cl, now)", []Test{rooted("RunOut"), bubble}},
		{"what was lost is given back before it has run out", "renew.go",
			"c.oweLeave(cl, max(cl.over, now), driver.Exit{})", "c.oweLeave(cl, now, driver.Exit{})", []Test{rooted("RunOut"), inRoot}},
		{"a renewal that fails once is a loss", "renew.go",
			"\tif driver.Gone(err) {\n\t\treason, operator", "\tif err != nil {\n\t\treason, operator", []Test{rooted("FailedRenewal"), bubble}},
		{"a claim that is gone is renewed on", "renew.go",
			"\tif driver.Gone(err) {\n\t\treason, operator", "\tif false {\n\t\treason, operator", []Test{rooted("GoneIsALoss"), inRoot}},
		{"a renewal that failed is not tried again before the lease ends", "renew.go",
			"cl.retryAt = now + min(max(int64(c.o.Backoff(cl.tries)), int64(cl.t.TTL)/1000), int64(cl.t.TTL)/12)", "cl.retryAt = never", []Test{rooted("Renewal"), inRoot}},
		{"a Leave that failed is not tried again", "leave.go",
			"if settled(err) || cl.state != leaving {", "if settled(err) || cl != nil {", []Test{rooted("Behind"), bubble}},
		{"a Leave ends with its caller's context", "client.go",
			"detached: true, ", "", []Test{rooted("ReleaseIgnores|CancelledContext"), bubble}},
		{"Close leaves the holders in their belief", "client.go",
			"\t\t\tc.endGrant(g, cl.lossOf(ErrClosed, g.token, \"\"))\n", "", []Test{rooted("Close"), bubble}},
		{"a call that got its lock during Close keeps it", "gate.go",
			"if err == nil && c.stage != open {", "if false {", []Test{rooted("DuringClose"), bubble}},
		{"a MinHold is no longer than the work", "lease.go",
			"e.Linger = max(left, c.info.MinTTL)", "_ = left", []Test{rooted("MinHold")}},
		{"LockAll takes the keys as they come", "multi.go",
			"slices.Compact(slices.Sorted(slices.Values(keys)))", "slices.Compact(slices.Clone(keys))", []Test{rooted("LockAll")}},
		{"a slot that is done is run again", "once.go",
			"!last.Slot.Before(slot)", "last.Slot.Before(last.Slot)", []Test{rooted("Once")}},
	}
}

// memory are the rules of the reference backend: what the laws are proved with.
func memory() []Mutant {
	laws := []Test{memLaws}
	return []Mutant{
		{"a claim that does not fit is granted", "memlock/line.go", "case l.sum <= c.Capacity:", "case l.sum > 0:", laws},
		{"a repeated Enter does not renew", "memlock/store.go", "\t\t\tl.renew(old, c.TTL, now)\n", "", laws},
		{"a repeated Enter makes a second claim", "memlock/store.go", "old != nil && !old.lingering {", "old != nil && old.lingering {", laws},
		{"a renewal shortens a lease", "memlock/line.go", "c.expires = max(c.expires, now.mono+c.TTL)", "c.expires = now.mono + c.TTL", laws},
		{"a renewal brings back what has expired", "memlock/store.go",
			"\tl.purge(now)\n\tc := l.find(id)\n", "\tc := l.find(id)\n", laws},
		{"a Leave without a token leaves no tombstone", "memlock/store.go",
			"\t\ts.rests.lay(t.Key, t.ID, now.mono+clampTTL(t.TTL), errLeft)\n", "", laws},
		{"what expires lets nobody in", "memlock/line.go",
			"\t\tl.soonest = min(l.soonest, c.expires)\n\t}\n\tl.grant(now)\n", "\t\tl.soonest = min(l.soonest, c.expires)\n\t}\n", laws},
		{"who leaves lets in only the first", "memlock/line.go",
			"\t\tif first != nil && !l.mixed() {\n\t\t\tbreak\n\t\t}\n", "\t\tif first != nil || c.granted {\n\t\t\tbreak\n\t\t}\n", laws},
		{"with two sizes in line, the first that does not fit stops the others", "memlock/line.go",
			"if first != nil && !l.mixed() {", "if first != nil {", laws},
		{"who is granted is not woken", "memlock/line.go",
			"\t\tc.mark = l.marked.mark\n\t}\n\tc.rouse()\n", "\t\tc.mark = l.marked.mark\n\t}\n", laws},
		{"a waiter does not wake when a lease before it ends", "memlock/store.go",
			"min(maxAwait, l.soonest-now.mono)", "maxAwait", laws},
		{"the kinds are not told apart", "memlock/store.go",
			"if (l.head.Capacity == driver.RW) != (c.Capacity == driver.RW) {", "if false {", laws},
		{"whoever waits writes a mark", "memlock/store.go", `e.Mark != "" && c.granted`, `e.Mark != ""`, laws},
		{"a claim that lingers is renewed", "memlock/store.go",
			"\tif c != nil && c.lingering {\n\t\treturn l, nil\n\t}\n", "", laws},
		{"tokens are the clock alone", "memlock/line.go", "max(l.last+1, now.wall.UnixMicro())", "now.wall.UnixMicro()", laws},
		{"a span is not reserved", "memlock/line.go", "l.last = max(l.last, c.token+c.Span-1)", "l.last = max(l.last, c.token)", laws},
		{"a break matches the first token only", "memlock/store.go", "token-c.token >= c.Span", "token != c.token", laws},
		{"a claim that was broken enters again", "memlock/store.go", "\t\ts.rests.lay(key, c.ID, c.expires, gone)\n", "", laws},
		{"a refused claim stays in line", "memlock/store.go", "if c.NoWait && l.sum+c.Weight > c.Capacity {", "if false {", laws},
	}
}
