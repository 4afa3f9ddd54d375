package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/sqllock"
)

// schemaDialects are the databases that keep locks in tables.
var schemaDialects = []sqllock.Dialect{sqllock.SQLite, sqllock.Postgres, sqllock.MySQL}

// dialectOf are the dialects by the schemes of URLs.
var dialectOf = map[string]string{
	"local": "sqlite", "sqlite": "sqlite", "postgres": "postgres", "postgresql": "postgres",
	"mysql": "mysql", "mariadb": "mysql",
}

func newSchema(c *cli) *cobra.Command {
	var names []string
	for _, d := range schemaDialects {
		names = append(names, d.String())
	}
	known := strings.Join(names, ", ")
	return &cobra.Command{
		Use:   "schema [DIALECT]",
		Short: "Print the DDL of the tables that a database needs",
		Long: fmt.Sprintf(`schema prints the DDL for a database, for those who create tables by hand. Known are
%s. The fencelock command creates its tables itself. That of mysql is for MariaDB
too, and for their own client: mysql locks < schema.sql
Without DIALECT, the URL in use says which database (see fencelock config).`, known),
		ValidArgs: names,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("want at most one argument, the dialect: %s", known)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			dialect := first(args)
			if dialect == "" {
				s, err := c.findStore()
				if err != nil {
					return err
				}
				if s.notice != "" { // nobody has named a store
					return usage("want one argument, the dialect: %s; or a URL in --url or %s", known, envURL)
				}
				if dialect = dialectOf[s.Scheme]; dialect == "" {
					return usage("%s keeps its locks in no tables; known are %s", s, known)
				}
			}
			i := slices.Index(names, dialect)
			if i < 0 {
				return usage("there is no dialect %s; known are %s", quote(dialect), known)
			}
			ddl, err := sqllock.Schema(schemaDialects[i], nil)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.out, ddl)
			return err
		},
	}
}
