package main

import (
	"cmp"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/terminal"
)

func newLs(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "ls [PREFIX]",
		SuggestFor: []string{"list", "status"},
		Short:      "Show who holds what, and who waits",
		Long: `ls shows every name that somebody holds or waits for, one line per holder and per
waiter, in the order of the line. A waiter has its token before its grant. -o json prints one array.`,
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
			lines, err := s.lines(ctx, first(args))
			if err != nil {
				return err
			}
			if asJSON {
				views := []lineView{}
				for _, l := range lines {
					views = append(views, viewOf(l))
				}
				return writeJSON(c.out, views, true)
			}
			if len(lines) == 0 && isTerminal(os.Stdout) {
				say("nobody holds or waits for a lock on %s", s.store)
			}
			return showTable(c.out, lines)
		},
	}
	c.outputFlag(cmd)
	return cmd
}

func onePrefix(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage("want at most one argument, the beginning of names, and not %d", len(args))
	}
	return nil
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// lines returns all lines whose names begin with prefix, by name.
func (s *session) lines(ctx context.Context, prefix string) ([]fencelock.Line, error) {
	var all []fencelock.Line
	for l, err := range s.Lines(ctx, prefix) {
		if err != nil {
			return nil, explain(s.store, "", err)
		}
		all = append(all, l)
	}
	return sorted(all), nil
}

// showTable prints nothing at all if there is nothing to show.
func showTable(w io.Writer, lines []fencelock.Line) error {
	if len(lines) == 0 {
		return nil
	}
	all, now := [][]string{slices.Clone(heading)}, time.Now()
	for _, l := range lines {
		all = append(all, rows(l, now)...)
	}
	fit(all, terminalWidth(os.Stdout), 0, 2, 7) // name, owner, note
	if !colours(os.Stdout) {
		return terminal.Table(w, all, nil)
	}
	return terminal.Table(w, all, func(column int, cell string) string {
		if column != 1 { // the state
			return cell
		}
		verb, _, _ := strings.Cut(cell, " ")
		return paint(verb, cell)
	})
}

// shortest is how short a cell may be cut.
const shortest = 8

// fit cuts cells until a table is no wider than a terminal; 0 stands for any width. The widest
// of the given columns gives way.
func fit(rows [][]string, width int, columns ...int) {
	widths := terminal.Widths(rows)
	total := 2 * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; width > 0 && total > width; total-- {
		widest := slices.MaxFunc(columns, func(a, b int) int { return cmp.Compare(widths[a], widths[b]) })
		if widths[widest] <= shortest {
			break
		}
		widths[widest]--
	}
	for _, row := range rows {
		for _, i := range columns {
			row[i] = cut(row[i], widths[i])
		}
	}
}

// colours reports whether what is written to f may have colours.
func colours(f *os.File) bool {
	return isTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// stateColours are the colours of what a claim does, in the first word that says so, and of
// severities.
var stateColours = map[string]string{
	"held": "32", "holds": "32", "waits": "33", "lingers": "35", "ends": "35", "left": "2",
	"error": "31", "warning": "33", "note": "2",
}

// paint gives text the colour of a state.
func paint(state, text string) string {
	colour := stateColours[state]
	if colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
