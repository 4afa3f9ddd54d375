package mutants

// guards are the rules of the resource side: the token is compared where the write is.
func guards() []Mutant {
	here := func(run string) []Test { return []Test{{Module: ".", Package: "./fence", Run: run}} }
	there := func(run string) []Test { return []Test{{Module: "verify", Package: "./fence", Run: run}} }
	redis := func(run string) []Test { return []Test{{Module: "redislock", Package: ".", Run: run}} }
	return []Mutant{
		{"a guard lets a stale token in", "fence/stale.go",
			"if given < seen {", "if false {", here(".")},
		{"a guard lets a holder write only once", "fence/stale.go",
			"if given < seen {", "if given <= seen {", here(".")},
		{"a guard lets writes without a token in", "fence/stale.go",
			"if t > 0 {", "if t >= 0 {", here(".")},
		{"a Gate forgets what it has seen", "fence/gate.go",
			"\tg.seen = t\n", "", here("Gate")},
		{"a Gate compares before it is its turn", "fence/gate.go",
			"\tif err := g.enter(ctx); err != nil {\n\t\treturn err\n\t}\n\tdefer g.leave()\n\tif err := compare(g.Resource, t, g.seen); err != nil {\n\t\treturn err\n\t}\n",
			"\tif err := compare(g.Resource, t, g.seen); err != nil {\n\t\treturn err\n\t}\n\tif err := g.enter(ctx); err != nil {\n\t\treturn err\n\t}\n\tdefer g.leave()\n", here("Waiter|Gate")},
		{"Rows takes no row for a success", "fence/rows.go",
			"case n == 0:", "case n < 0:", here("Row")},
		{"a Table on SQLite forgets the larger token", "fence/query/raise_sqlite.sql",
			"max(m.token, excluded.token)", "excluded.token", there("TableRefuses")},
		{"a Table on PostgreSQL forgets the larger token", "fence/query/raise_postgres.sql",
			"greatest(m.token, excluded.token)", "excluded.token", there("TableRefuses")},
		{"a Table on MariaDB forgets the larger token", "fence/query/raise_mysql.sql",
			"GREATEST(token, ?)", "?", there("TableRefuses")},
		{"a Table on MariaDB reads an old snapshot", "fence/query/seen_mysql.sql",
			" FOR UPDATE\n", "\n", there("OldSnapshot")},
		{"a refused request is sent on", "fence/http_server.go",
			"\tcase errors.Is(err, ErrStale):\n\t\tstale(resource, token, err).write(w)\n", "\tcase errors.Is(err, ErrStale):\n\t\theld.send(w)\n", here("Handler")},
		{"a fence on Redis compares numbers of Lua", "redislock/script/fence.lua",
			"if seen and (#token < #seen or #token == #seen and token < seen) then", "if seen and tonumber(token) < tonumber(seen) then", redis("Fence")},
		{"a fence on Redis forgets the larger token", "redislock/script/fence.lua",
			"  elseif seen ~= token then\n    redis.call('SET', mark, token)\n", "  elseif not seen then\n    redis.call('SET', mark, token)\n", redis("Fence")},
	}
}
