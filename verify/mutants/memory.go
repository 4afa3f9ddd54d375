package mutants

// memory are the rules of the reference backend: what the laws are proved with.
func memory() []Mutant {
	laws := []Test{memLaws}
	return []Mutant{
		{"a claim that does not fit is granted", "memlock/queue.go", "if q.total <= c.Capacity {", "if q.total > 0 {", laws},
		{"a repeated Enter does not renew", "memlock/verbs.go", "\t\tq.renew(own, c.TTL, now)\n", "", laws},
		{"a repeated Enter makes a second claim", "memlock/verbs.go", "own := q.findLive(c.ID); own != nil {", "own := q.findLive(c.ID); false {", laws},
		{"a renewal shortens a lease", "memlock/queue.go", "c.expires = max(c.expires, now.mono+c.TTL)", "c.expires = now.mono + c.TTL", laws},
		{"a renewal brings back what has expired", "memlock/store.go",
			"\tq.purge(now)\n\treturn q\n", "\treturn q\n", laws},
		{"a Leave without a token leaves no tombstone", "memlock/verbs.go",
			"\t\ts.tombstones.put(t.Ref(), now.mono+clampTTL(t.TTL), errLeft, now)\n", "", laws},
		{"what expires lets nobody in", "memlock/queue.go",
			"\tq.claims = kept\n\tq.grant(now)\n", "\tq.claims = kept\n", laws},
		{"what expires is taken out one at a time", "memlock/queue.go",
			"\t\t\tq.forget(c)\n\t\t\tcontinue\n", "\t\t\tq.forget(c)\n\t\t\tkept = append(kept, q.claims[len(kept)+1:]...)\n\t\t\tbreak\n", laws},
		{"a waiter that leaves lets nobody in", "memlock/verbs.go",
			"\tq.remove(c)\n\tq.grant(now)\n\treturn nil\n", "\tq.remove(c)\n\tif c.granted {\n\t\tq.grant(now)\n\t}\n\treturn nil\n", laws},
		{"the first who waits does not hear that a place lingers for less", "memlock/queue.go",
			"\t\t\tw.wakeWaiter()\n", "", laws},
		{"who leaves lets in only the first", "memlock/queue.go",
			"\t\tcase sum <= c.Capacity:\n\t\t\tq.admit(c, now)\n", "\t\tcase sum <= c.Capacity:\n\t\t\tq.admit(c, now)\n\t\t\treturn\n", laws},
		{"with two sizes in line, the first that does not fit stops the others", "memlock/queue.go",
			"case !mixed:", "case !mixed || true:", laws},
		{"who is granted is not woken", "memlock/queue.go",
			"= true, now.wall, q.mark\n\tc.wakeWaiter()\n", "= true, now.wall, q.mark\n", laws},
		{"a waiter does not wake when a lease before it ends", "memlock/verbs.go",
			"min(maxAwait, q.nextExpiry-now.mono)", "maxAwait", laws},
		{"the kinds are not told apart", "memlock/verbs.go",
			"if (q.claims[0].Capacity == driver.RW) != (c.Capacity == driver.RW) {", "if false {", laws},
		{"whoever waits writes a mark", "memlock/verbs.go", `e.Mark != "" && c.granted`, `e.Mark != ""`, laws},
		{"a claim that lingers is renewed", "memlock/queue.go",
			"c := q.find(id); c != nil && !c.lingering {", "c := q.find(id); c != nil {", laws},
		{"tokens are the clock alone", "memlock/queue.go", "max(q.lastToken+1, now.wall.UnixMicro())", "now.wall.UnixMicro()", laws},
		{"a span is not reserved", "memlock/queue.go", "q.lastToken = max(q.lastToken, c.token+c.Span-1)", "q.lastToken = max(q.lastToken, c.token)", laws},
		{"a break matches the first token only", "memlock/verbs.go", "token-c.token >= c.Span", "token != c.token", laws},
		{"a claim that was broken enters again", "memlock/verbs.go", "\t\ts.tombstones.put(c.Ref(), c.expires, gone, now)\n", "", laws},
		{"a refused claim stays in line", "memlock/verbs.go", "if c.NoWait && q.total+c.Weight > c.Capacity {", "if false {", laws},
	}
}
