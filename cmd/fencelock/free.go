package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
)

func newFree(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "free NAME",
		Short: "Is a name free now?",
		Long: `free exits 0 if nobody holds NAME or waits for it, and 75 if somebody does. It does not
take the lock, so the answer may have changed by the time you act on it.`,
		Args: oneName,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := c.refuseMemory("free", args[0]); err != nil {
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
			if len(line.Claims()) > 0 {
				return fail(exitNotAcquired, "%s is not free: %s, on %s", quote(args[0]), heldBy(headOf(line)), s.store)
			}
			return nil
		},
	}
	return cmd
}

// headOf describes the first claim of a line as what stands in the way.
func headOf(l fencelock.Line) *fencelock.HeldError {
	c := l.Claims()[0]
	return &fencelock.HeldError{
		Key: l.Key, Owner: c.Owner, Note: c.Note, Token: c.Token, Since: c.Since, Left: c.Left,
		Ahead: len(l.Claims()),
	}
}

// refuseMemory refuses the store that nobody else sees, for verbs that would always
// say the same there.
func (c *cli) refuseMemory(verb, name string) error {
	s, err := c.findStore()
	if err != nil {
		return err
	}
	if s.Private() {
		return unusable(usage("memory: is seen by nobody outside this process, so %s %s would mean nothing; set %s, "+
			"or use --url local:", verb, quote(name), envURL), s.source)
	}
	return nil
}
