package sqllock

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/fencelock/fencelock/internal/swapsql"
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,31}$`)

// tablePrefix returns the prefix of the tables. It goes into SQL text, so only what is an identifier
// in every database is let through.
func tablePrefix(prefix string) (string, error) {
	switch {
	case prefix == "":
		return swapsql.DefaultPrefix, nil
	case !identifier.MatchString(prefix):
		return "", fmt.Errorf("the table prefix %.40q is not a name: want 1 to 32 letters, digits and "+
			"underscores, no digit first", prefix)
	case strings.HasPrefix(strings.ToLower(prefix), "sqlite_"):
		return "", fmt.Errorf("the table prefix %q is reserved by SQLite: choose another", prefix)
	}
	return prefix, nil
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
	prefix, err := tablePrefix(o.Prefix)
	if err != nil {
		return "", fmt.Errorf("%v: %w", d, err)
	}
	return k.Schema(prefix), nil
}

func errDialect(d Dialect) error {
	return fmt.Errorf("sqllock has no dialect %d: pass sqllock.SQLite, sqllock.Postgres or sqllock.MySQL", int(d))
}

// tableFormat is the format of the tables that this version keeps. formatSQL reads it, and not from a standby that may
// not have the tables yet.
const (
	tableFormat = "3"
	formatSQL   = "{sure}SELECT value FROM fencelock_meta WHERE name = 'format'"
)

var errNoFormat = errors.New("does not say which format the tables have")

// checkFormat refuses tables of another format.
func (c *config) checkFormat(format string) error {
	switch format {
	case tableFormat:
		return nil
	case "":
		return permanent(fmt.Errorf("%s: the table %smeta %w: run the DDL of this version again", c.name,
			c.prefix, errNoFormat))
	case "1", "2":
		return permanent(fmt.Errorf("%s: the tables %s* have format %s, of an earlier fencelock, and this program "+
			"knows format %s: end all programs that use them, then drop them (on SQLite delete the file with its -wal "+
			"and -shm), or use another Prefix", c.name, c.prefix, format, tableFormat))
	}
	return permanent(fmt.Errorf("%s: the tables %s* have format %s, and this program knows format %s: use the "+
		"fencelock that made them, or another Prefix", c.name, c.prefix, format, tableFormat))
}
