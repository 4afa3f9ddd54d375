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
			switch {
			case verb == cmd.Root() && len(rest) > 0 || err != nil:
				return unknownVerb(cmd.Root(), strings.Join(args, " "))
			case len(rest) > 0:
				return usage("give one verb, and nothing else; there is %s after %s", quote(rest[0]), verb.Name())
			}
			verb.InitDefaultHelpFlag() // or the help would not list --help
			return verb.Help()
		},
	}
}

// refuseHelp makes "fencelock rnu --help" an error. Cobra would show the help of root.
func (c *cli) refuseHelp(root *cobra.Command) {
	show := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		for _, a := range args {
			if cmd != root || strings.HasPrefix(a, "-") {
				continue
			}
			verb, _, err := root.Find([]string{a})
			if err == nil && verb != root { // fencelock -h run
				show(verb, nil)
				return
			}
			c.refused = unknownVerb(root, a)
			return
		}
		show(cmd, args)
	})
}

// unknownVerb says which verb was meant, if one is close.
func unknownVerb(root *cobra.Command, name string) error {
	root.SuggestionsMinimumDistance = 2
	if near := root.SuggestionsFor(name); len(near) > 0 {
		return usage("there is no verb %s; did you mean %s?", quote(name), strings.Join(near, ", or "))
	}
	return usage("there is no verb %s; see fencelock help", quote(name))
}
