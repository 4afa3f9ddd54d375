package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
)

func newWatch(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch [PREFIX]",
		Short: "Show who takes, waits for and leaves names, live",
		Long: `watch shows all holders and waiters, and then every change, until it is interrupted.
-o json prints one object per line: the present state of a name that changed. watch
reads the store four times a second and misses what comes and goes in between. It
rides out an outage of the store, and says so on stderr.`,
		Args: onePrefix,
		RunE: func(_ *cobra.Command, args []string) error {
			asJSON, err := c.json()
			if err != nil {
				return err
			}
			ctx := context.Background()
			s, err := c.look(ctx, "")
			if err != nil {
				return err
			}
			defer s.close()
			return s.watch(ctx, c.out, first(args), asJSON)
		},
	}
	c.outputFlag(cmd)
	return cmd
}

func (s *session) watch(ctx context.Context, w io.Writer, prefix string, asJSON bool) error {
	known := map[string]fencelock.Line{}
	for {
		lines, err := s.linesAfterOutage(ctx, prefix)
		if err != nil {
			return err
		}
		now := map[string]fencelock.Line{}
		for _, l := range lines {
			now[l.Key] = l
		}
		for key := range known {
			if _, ok := now[key]; !ok {
				lines = append(lines, fencelock.Line{Key: key})
			}
		}
		for _, l := range sorted(lines) {
			if err := printChanges(w, known[l.Key], l, asJSON); err != nil {
				return err
			}
		}
		known = now
		time.Sleep(lookEvery)
	}
}

// linesAfterOutage is lines, again and again while the store does not answer.
func (s *session) linesAfterOutage(ctx context.Context, prefix string) ([]fencelock.Line, error) {
	for told := false; ; {
		lines, err := s.lines(ctx, prefix)
		var own *failure
		if !errors.As(err, &own) || own.code != exitUnavailable {
			if told && err == nil {
				say("%s answers again; what happened meanwhile is shown as one change", s.store)
			}
			return lines, err
		}
		if !told {
			told = true
			say("%s; watching goes on when it answers", own.text)
		}
		time.Sleep(4 * lookEvery)
	}
}

// printChanges prints what changed between two looks at a line: who left, then who holds
// and who waits, in the order of the line.
func printChanges(w io.Writer, before, now fencelock.Line, asJSON bool) error {
	if asJSON {
		was, is := viewOf(before), viewOf(now)
		if is.Kind == "" {
			is.Kind, is.Size = was.Kind, was.Size
		}
		if sameView(was, is) {
			return nil
		}
		return writeJSON(w, is, false)
	}
	stands, stood := byToken(now), byToken(before)
	for _, c := range before.Claims {
		if _, stays := stands[c.Token]; !stays {
			if err := event(w, now.Key, "left", c); err != nil {
				return err
			}
		}
	}
	for _, c := range now.Claims {
		was, known := stood[c.Token]
		if known && was.Granted == c.Granted && was.Lingering == c.Lingering && was.Reason == c.Reason {
			continue
		}
		if err := event(w, now.Key, doing(c, "holds", "waits"), c); err != nil {
			return err
		}
	}
	return nil
}

func byToken(l fencelock.Line) map[fence.Token]fencelock.Standing {
	claims := map[fence.Token]fencelock.Standing{}
	for _, c := range l.Claims {
		claims[c.Token] = c
	}
	return claims
}

func event(w io.Writer, key, what string, c fencelock.Standing) error {
	note := ""
	if c.Note != "" {
		note = " (" + noteText(c.Note) + ")"
	}
	shown := what
	if colours(os.Stdout) {
		shown = paint(what, what)
	}
	_, err := fmt.Fprintf(w, "%s  %s  %s %s%s, token %s\n",
		time.Now().Format("15:04:05"), plain(key), plain(c.Owner), shown, note, c.Token)
	return err
}

// sameView compares all but the time left, which changes always.
func sameView(a, b lineView) bool {
	for _, v := range []*lineView{&a, &b} {
		for _, claims := range []*[]claimView{&v.Holders, &v.Waiters} {
			steady := []claimView{}
			for _, c := range *claims {
				c.LeftMS = 0
				steady = append(steady, c)
			}
			*claims = steady
		}
	}
	return reflect.DeepEqual(a, b)
}
