package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/storeurl"
)

const (
	// completeWithin bounds how long a shell waits for names.
	completeWithin = time.Second
	// maxCompletions bounds the names that a shell is offered.
	maxCompletions = 100
)

// completions tells shells what may follow in each verb: names of locks that somebody
// holds or waits for, and values of flags.
func (c *cli) completions(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "run", "once", "acquire", "wait", "show", "history", "break", "ls", "watch":
			cmd.ValidArgsFunction = c.completeName
		}
		for flag, values := range map[string][]string{
			"output":    {"text", "json"},
			"on-loss":   {string(lossTerm), string(lossKill), string(lossIgnore)},
			"on-revoke": {"TERM", "HUP", "INT", "USR1", "USR2"},
			"progress":  {"fd:3", "file:", "stdout"},
			"slot":      {"hour", "day", "5m", "15m", "6h"},
		} {
			if cmd.Flags().Lookup(flag) != nil {
				offer := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
				_ = cmd.RegisterFlagCompletionFunc(flag, offer)
			}
		}
	}
	schemes := storeurl.Schemes()
	for i := range schemes {
		schemes[i] += ":"
	}
	_ = root.RegisterFlagCompletionFunc("url", cobra.FixedCompletions(schemes, cobra.ShellCompDirectiveNoSpace))
}

// completeName offers names for the first argument, and files after it: a command follows.
func (c *cli) completeName(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		if cmd.Flags().ArgsLenAtDash() >= 0 || cmd.Name() == "run" || cmd.Name() == "once" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeWithin)
	defer cancel()
	var names []string
	if s, err := c.findStore(); err == nil {
		names = s.names(ctx, begun)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// names returns the names in use that begin with prefix, as far as the store says in time.
func (s *store) names(ctx context.Context, prefix string) []string {
	if s.notice != "" {
		if _, err := os.Stat(s.Path); err != nil {
			return nil // a shell that completes makes no file
		}
	}
	open, err := s.connect(ctx, "", completeWithin)
	if err != nil {
		return nil
	}
	defer open.Close()
	var names []string
	for l, err := range open.Backend.Lines(ctx, prefix) {
		if err != nil || len(names) == maxCompletions {
			break
		}
		if len(l.Claims) > 0 && plain(l.Key) == l.Key { // others would break the shell's list
			names = append(names, l.Key)
		}
	}
	return names
}
