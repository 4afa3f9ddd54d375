package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
)

func newShow(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one name: holders, waiters, the last token, the last run of once",
		Args:  oneName,
		RunE: func(_ *cobra.Command, args []string) error {
			asJSON, err := c.json()
			if err != nil {
				return err
			}
			ctx := context.Background()
			s, err := c.look(ctx, args[0])
			if err != nil {
				return err
			}
			defer s.close()
			line, err := s.Line(ctx, args[0])
			if err != nil {
				return explain(s.store, args[0], err)
			}
			if asJSON {
				v := viewOf(line)
				v.addMemory(line)
				return writeJSON(c.out, v, true)
			}
			return showLine(c.out, line)
		},
	}
	c.outputFlag(cmd)
	return cmd
}

func showLine(w io.Writer, l fencelock.Line) error {
	if len(l.Claims) == 0 {
		fmt.Fprintf(w, "%s is free\n", quote(l.Key))
		if l.Last > 0 {
			fmt.Fprintf(w, "last token: %s\n", l.Last)
		}
	} else if err := showTable(w, []fencelock.Line{l}); err != nil {
		return err
	}
	for _, c := range l.Claims {
		if c.Reason != "" {
			fmt.Fprintf(w, "notice: the grant of %s ends in %s: %s\n", plain(c.Owner), span(c.Left), plain(c.Reason))
		}
	}
	if !l.Done.IsZero() {
		slot := "once forever"
		if !l.Slot.IsZero() {
			slot = l.Slot.Local().Format(slotForm)
		}
		fmt.Fprintf(w, "last slot done: %s, at %s by %s\n", slot, l.Done.Local().Format(slotForm), plain(l.DoneBy))
	}
	return nil
}
