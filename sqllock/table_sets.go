package sqllock

import "strings"

// tableSets are the schemas of a PostgreSQL database that have tables of locks, quoted. Clients of
// two sets would hold one lock at the same time, so there may be one set only.
type tableSets struct {
	here  string            // the schema that this client uses, or ""
	all   []string          // here comes first
	lists map[string]string // the tables of each
	way   string            // what leads the role of this client to the last one
}

// add takes a schema, its tables and the way to them: a row of schemas.sql.
func (s *tableSets) add(here bool, schema, tables, way string) {
	if here {
		s.here = schema
	}
	if s.lists == nil {
		s.lists = map[string]string{}
	}
	s.all, s.lists[schema], s.way = append(s.all, schema), tables, way
}

// split reports whether this client does not use the only set.
func (s *tableSets) split() bool { return len(s.all) > 1 || len(s.all) == 1 && s.here == "" }

// why says in sentences what is wrong with a split.
func (s *tableSets) why() string {
	if s.here == "" {
		return "The tables of locks are in the schema " + strings.Join(s.all, " and in ") + ", which the role of " +
			"this client does not find in its search_path. With tables of its own it would hold locks that others hold."
	}
	return "There are tables of locks in the schema " + strings.Join(s.all, " and in ") + ". This client uses those " +
		"in " + s.here + ", and would hold locks that clients of others hold."
}

// remedy are the statements after which this client uses the only set.
func (s *tableSets) remedy() string {
	if len(s.all) == 1 {
		return s.way
	}
	keep := s.all[0]
	if s.lists["public"] != "" {
		keep = "public"
	}
	var drop []string
	for _, schema := range s.all {
		if schema != keep {
			drop = append(drop, "DROP TABLE "+s.lists[schema]+" CASCADE")
		}
	}
	return "stop the clients of one set, then " + strings.Join(drop, "; ")
}
