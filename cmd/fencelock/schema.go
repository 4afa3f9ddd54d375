package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/sqllock"
)

func newSchema(*cli) *cobra.Command {
	return &cobra.Command{
		Use:   "schema DIALECT",
		Short: "Print the DDL of the tables that a database needs",
		Long: `schema prints the DDL for a database, for those who create tables by hand. Known is
sqlite. The fencelock command creates its tables itself.`,
		ValidArgs: []string{"sqlite"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("want one argument, the dialect: sqlite")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] != "sqlite" {
				return usage("unknown dialect %s; known is sqlite", quote(args[0]))
			}
			ddl, err := sqllock.Schema(sqllock.SQLite, nil)
			if err != nil {
				return err
			}
			fmt.Println(ddl)
			return nil
		},
	}
}
