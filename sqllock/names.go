package sqllock

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// defaultPrefix begins the names of all tables in the embedded SQL.
const defaultPrefix = "fencelock_"

// names turns embedded SQL into that of one set of tables.
type names struct{ prefix string }

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,31}$`)

// newNames checks a prefix. It goes into SQL text, so only what is an identifier
// in every database is let through.
func newNames(prefix string) (names, error) {
	switch {
	case prefix == "":
		return names{defaultPrefix}, nil
	case !identifier.MatchString(prefix):
		return names{}, fmt.Errorf("the table prefix %.40q is not a name: want 1 to 32 letters, digits and "+
			"underscores, no digit first", prefix)
	case strings.HasPrefix(strings.ToLower(prefix), "sqlite_"):
		return names{}, fmt.Errorf("the table prefix %q is reserved by SQLite: choose another", prefix)
	}
	return names{prefix}, nil
}

// sql puts the prefix into embedded SQL.
func (n names) sql(text string) string {
	if n.prefix == defaultPrefix {
		return text
	}
	return strings.ReplaceAll(text, defaultPrefix, n.prefix)
}

// statement is sql for one statement: without comments, what is meant for a client, and the
// final semicolon, because some drivers prepare again at each call what has a tail.
func (n names) statement(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") && !strings.HasPrefix(line, "DELIMITER") {
			b.WriteString(line)
		}
	}
	return n.sql(strings.Trim(b.String(), "; \n"))
}

// withoutComments is SQL without lines, and ends of lines, that are comments.
func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "--")
		b.WriteString(strings.TrimRight(code, " \n") + "\n")
	}
	return b.String()
}

// Schema returns the DDL of the tables, as CreateTables runs it. It may be run
// more than once. Of o only Prefix matters; nil is ready.
func Schema(d Dialect, o *Options) (string, error) {
	k, ok := dialects[d]
	if !ok {
		return "", errDialect(d)
	}
	if o == nil {
		o = &Options{}
	}
	n, err := newNames(o.Prefix)
	if err != nil {
		return "", fmt.Errorf("%v: %w", d, err)
	}
	return k.swap.Schema(n.prefix), nil
}

func errDialect(d Dialect) error {
	return fmt.Errorf("sqllock has no dialect %d: pass sqllock.SQLite, sqllock.Postgres or sqllock.MySQL", int(d))
}

// tableFormat is the format of the tables that this version keeps.
const tableFormat = "2"

var errNoFormat = errors.New("does not say which format the tables have")

// checkFormat refuses tables of another format.
func (c *config) checkFormat(format string) error {
	switch format {
	case tableFormat:
		return nil
	case "":
		return permanent(fmt.Errorf("%s: the table %smeta %w: run the DDL of this version again", c.name,
			c.names.prefix, errNoFormat))
	case "1":
		next := "drop these tables, or use another Prefix"
		if c.name == "sqlite" {
			next = "delete the file with its -wal and -shm, or name another file"
		}
		return permanent(fmt.Errorf("%s: the tables %s* have format 1, of an earlier fencelock, and this program "+
			"knows format %s: end all programs that use them, then %s", c.name, c.names.prefix, tableFormat, next))
	}
	return permanent(fmt.Errorf("%s: the tables %s* have format %s, and this program knows format %s: use the "+
		"fencelock that made them, or another Prefix", c.name, c.names.prefix, format, tableFormat))
}
