//go:build man

package main

import (
	"strings"

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
			keepExamples(root)
			header := &doc.GenManHeader{Section: "1", Source: "fencelock " + args[1], Manual: "fencelock"}
			return doc.GenManTree(root, header, args[0])
		},
	}}
}

// keepExamples indents what the help texts indent by two, so that the man pages keep its
// lines: they are made of Markdown, where four make an example.
func keepExamples(cmd *cobra.Command) {
	var b strings.Builder
	for line := range strings.Lines(cmd.Long) {
		if strings.HasPrefix(line, "  ") {
			line = "  " + line
		}
		b.WriteString(line)
	}
	cmd.Long = b.String()
	for _, verb := range cmd.Commands() {
		keepExamples(verb)
	}
}
