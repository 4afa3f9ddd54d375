package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// newHelp replaces cobra's own help verb, which ends with 0 for a topic that does not exist.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [VERB]",
		Short: "Show the help of a verb",
		RunE: func(cmd *cobra.Command, args []string) error {
			verb, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usage("there is no verb %s; see fencelock help", quote(strings.Join(args, " ")))
			}
			verb.InitDefaultHelpFlag() // or the help would not list --help
			return verb.Help()
		},
	}
}
