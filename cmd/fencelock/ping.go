package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func newPing(c *cli) *cobra.Command {
	wait := seconds{d: firstContact}
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Does the store answer?",
		Long: `ping asks the store once, for health checks. It takes no lock. Exit codes: 0 the store
answers, 69 it does not, 78 it refuses the user, the password or the settings. On Redis ping
reads keys: one node of a Cluster is refused, because it serves some names only. Of a quorum
it asks each server which one it is, and refuses two that are one.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("ping takes no arguments, and %s is one", quote(args[0]))
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			if wait.d <= 0 {
				return usage("-w is %v; ping needs time for an answer", wait.d)
			}
			s, err := c.findStore()
			if err != nil {
				return err
			}
			begun := time.Now()
			open, err := s.connect(context.Background(), "", wait.d)
			if err != nil {
				return err
			}
			took := time.Since(begun)
			defer closeSoon(open.Close)
			if quorum, ok := open.Backend.(interface{ Distinct(context.Context) error }); ok {
				ctx, cancel := context.WithTimeout(context.Background(), wait.d)
				defer cancel()
				if err := quorum.Distinct(ctx); err != nil {
					return explain(s, "", err)
				}
			}
			_, err = fmt.Fprintf(c.out, "%s answers after %v\n", s, took.Round(10*time.Microsecond))
			return err
		},
	}
	cmd.Flags().VarP(&wait, "wait", "w", "wait at most this long for an answer")
	return cmd
}
