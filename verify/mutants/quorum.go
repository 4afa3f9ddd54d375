package mutants

// quorum are the rules of the majority.
func quorum() []Mutant {
	by := func(run string) []Test { return []Test{{Module: ".", Package: "./quorumlock", Run: run}} }
	sim := []Test{{Module: ".", Package: "./quorumlock", Run: "Simulat"}}
	return []Mutant{
		{"quorum: half of the nodes are a majority", "quorumlock/quorum.go",
			"len(members)/2 + 1", "len(members) / 2", sim},
		{"quorum: votes for different tokens are counted together", "quorumlock/vote.go",
			"\t\treturn a.ticket.Token\n\t})", "\t\treturn 1\n\t})", sim},
		{"quorum: a member grants ballots below its floor", "memlock/member.go",
			"if c.Ballot <= max(last, wall-skew) || ", "if ", sim},
		{"quorum: a member takes ballots from far ahead", "memlock/member.go",
			" || c.Ballot > max(last+driver.MaxSpan, wall+skew)", "", sim},
		{"quorum: a claim re-enters where a later one was granted", "memlock/member.go",
			"if c.Ballot > last || c.Ballot+c.Span-1 == last && len(q.claims) == 0 {", "if c.Ballot > 0 {", []Test{memLaws}},
		{"quorum: one node that renews a claim sends it back to the others", "quorumlock/renew.go",
			"if r.alive[n]++; r.alive[n] == r.b.majority {", "if r.alive[n]++; r.alive[n] == 1 {", by("MinorityKeeps")},
		{"quorum: a member that lost its data grants at once", "memlock/member.go",
			"m.initialised, m.readyAt = true, now.mono+m.MaxTTL", "m.initialised, m.readyAt = true, now.mono", sim},
		{"quorum: an attempt that failed stays on the nodes", "quorumlock/enter.go",
			"\t\tb.retreat(ctx, cl, v)\n", "", by("Attempt")},
		{"quorum: a Leave overtakes the Enter that is under way on its node", "quorumlock/claim.go",
			"\t\tif before != nil {\n", "\t\tif false {\n", by("LeaveComesBehind")},
		{"quorum: the answers of a late majority count", "quorumlock/vote.go",
			"return t, time.Since(v.sent) < validity(t.Left)", "return t, true", by("MajorityThat")},
		{"quorum: one node keeps a claim alive", "quorumlock/renew.go",
			"return r.gone[n] > len(r.b.nodes)-r.b.majority }", "return r.gone[n] == len(r.b.nodes) }", by("MinorityKeeps")},
		{"quorum: a line that one node shows twice has two votes", "quorumlock/look.go",
			"if seen[l.Key] {", "if false {", by("ShowsTwice")},
		{"quorum: a claim is sent back to a node where an operator broke it", "quorumlock/renew.go",
			"if !errors.As(r.answers[n][i], &gone) || gone.Broken {", "if !errors.As(r.answers[n][i], &gone) {", by("BrokenClaimIs")},
	}
}
