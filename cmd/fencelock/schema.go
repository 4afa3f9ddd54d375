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

func newSchema(c *cli) *cobra.Command {
	var names []string
	for _, d := range schemaDialects {
		names = append(names, d.String())
	}
	known := strings.Join(names, ", ")
	return &cobra.Command{
		Use:   "schema DIALECT",
		Short: "Print the DDL of the tables that a database needs",
		Long: fmt.Sprintf(`schema prints the DDL for a database, for those who create tables by hand. Known are
%s. The fencelock command creates its tables itself. That of mysql is for MariaDB
too, and for their own client: mysql locks < schema.sql`, known),
		ValidArgs: names,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("want one argument, the dialect: %s", known)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			i := slices.Index(names, args[0])
			if i < 0 {
				return usage("unknown dialect %s; known are %s", quote(args[0]), known)
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
