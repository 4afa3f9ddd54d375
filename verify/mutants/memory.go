package mutants

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
		{"what expires is taken out one at a time", "memlock/line.go",
			"\t\t\tl.remove(c)\n\t\t\tcontinue\n", "\t\t\tl.remove(c)\n\t\t\tbreak\n", laws},
		{"a waiter that leaves lets nobody in", "memlock/store.go",
			"\tl.remove(c)\n\tl.grant(now)\n\treturn nil\n", "\tl.remove(c)\n\tif c.granted {\n\t\tl.grant(now)\n\t}\n\treturn nil\n", laws},
		{"the first who waits does not hear that a place lingers for less", "memlock/line.go",
			"\t\tl.waiting.rouse()\n", "", laws},
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
