//go:build man

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// makerVerbs are for making a release. A build without the tag man has none: cobra/doc
// would double the size of the binary.
func makerVerbs(*cli) []*cobra.Command {
	return []*cobra.Command{{
		Use:    "man DIR VERSION",
		Short:  "Write the man pages",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			header := &doc.GenManHeader{Section: "1", Source: "fencelock " + args[1], Manual: "fencelock"}
			return doc.GenManTree(root, header, args[0])
		},
	}}
}
