package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/history"
	"github.com/fencelock/fencelock/internal/clean"
	"github.com/fencelock/fencelock/internal/note"
	"github.com/fencelock/fencelock/internal/terminal"
)

// envHistory is the variable for the flag --history.
const envHistory = "FENCELOCK_HISTORY"

// grantView is a grant as history -o json shows it. Fields only ever grow in number.
type grantView struct {
	Token    fence.Token `json:"token"`
	Owner    string      `json:"owner"`
	Note     string      `json:"note"`
	Slot     string      `json:"slot,omitempty"` // of once over HTTP: a time, or "ever"
	Kind     string      `json:"kind"`           // exclusive, shared or permits
	Permits  int64       `json:"permits,omitzero"`
	Asked    time.Time   `json:"asked,omitzero"`
	Granted  time.Time   `json:"granted,omitzero"` // left out if it was broken while it waited
	Ended    time.Time   `json:"ended,omitzero"`
	WaitedMS int64       `json:"waited_ms"`
	HeldMS   int64       `json:"held_ms"`
	Held     bool        `json:"held"`
	End      string      `json:"end,omitzero"` // none, and not held: its process wrote no end
	Reason   string      `json:"reason,omitzero"`
	BrokenBy string      `json:"broken_by,omitzero"`
	Missing  uint64      `json:"missing,omitzero"` // entries that its process could not write before
}

func newHistory(c *cli) *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "Show who held a name, how long, and who broke it",
		Long: `history shows the last grants of NAME, the newest first: who held it, how long they waited
and held it, how it ended, and who broke it and why. The store remembers it, if those who
hold locks write it: run, once, acquire, release, serve and break do with --history,
with FENCELOCK_HISTORY=1, or with history = true in fencelock.toml; a program does with
package history. It works on SQLite, PostgreSQL, MariaDB and Redis, and keeps the last 1000
grants of a name for 30 days.

A process writes a moment after the event. "no end was written": the process was killed, or
could not reach the store. Times are those of the hosts that wrote them.`,
		Args: oneName,
		RunE: func(_ *cobra.Command, args []string) error {
			asJSON, err := c.json()
			if err != nil {
				return err
			}
			if n < 1 || n > 100_000 {
				return usage("-n %d: want 1 to 100000", n)
			}
			ctx := context.Background()
			s, err := c.look(ctx, args[0])
			if err != nil {
				return err
			}
			defer s.close()
			if !s.remembers() {
				return unusable(noHistory(s.store), s.store.source)
			}
			entries, err := history.Read(ctx, s.open.Backend, args[0], n)
			if err != nil {
				return explain(s.store, args[0], err)
			}
			if len(entries) == 0 {
				say("%s has no history: those who hold it write one only with --history or %s=1",
					quote(args[0]), envHistory)
			}
			return showHistory(c.out, entries, asJSON)
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", 50, "how many grants to show")
	c.outputFlag(cmd)
	return cmd
}

// addHistory declares the flag of a verb that holds names, or ends claims.
func (c *cli) addHistory(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.history, "history", false,
		"write who held the name to the store, for fencelock history (default $"+envHistory+")")
	cmd.PreRun = func(*cobra.Command, []string) { c.writesHistory = true }
}

// historyFrom says whether a history is to be written, and which setting says so.
func (s *store) historyFrom() (on bool, from string, err error) {
	text := clean.Env(envHistory)
	if text == "" {
		return s.file.History, s.file.path, nil
	}
	if on, err = strconv.ParseBool(text); err != nil {
		return false, "", fail(exitConfig, "%s is %s: want 1 or 0", envHistory, quote(text))
	}
	return on, envHistory, nil
}

// writeHistory has the Client of a session on s write its history, if that is wanted.
func (c *cli) writeHistory(s *store, b driver.Backend, o *fencelock.Options) error {
	on, _, err := s.historyFrom()
	if o, ok := b.(interface{ seen() driver.Backend }); ok {
		b = o.seen()
	}
	_, remembers := b.(record.Store)
	switch {
	case err != nil || !c.writesHistory || !on && !c.history:
		return err
	case !remembers && c.history:
		return noHistory(s)
	case !remembers:
		return unusable(noHistory(s), "")
	}
	recorder, err := history.New(b, &history.Options{OnError: func(err error) { say("%s: %v", s, err) }})
	if err != nil {
		return err
	}
	next := o.OnEvent
	o.OnEvent = func(e fencelock.Event) {
		recorder.OnEvent(e)
		if next != nil {
			next(e)
		}
	}
	return nil
}

func noHistory(s *store) error {
	return usage("%s keeps no history; SQLite, PostgreSQL, MariaDB and Redis do", s)
}

// remembers reports whether the store can keep a history.
func (s *session) remembers() bool {
	_, ok := s.open.Backend.(record.Store)
	return ok
}

func showHistory(w *terminal.Output, entries []history.Entry, asJSON bool) error {
	now := time.Now()
	if asJSON {
		views := []grantView{}
		for _, e := range entries {
			views = append(views, grantOf(e, now))
		}
		return writeJSON(w, views, true)
	}
	if len(entries) == 0 {
		return nil
	}
	table := [][]string{{"GRANTED", "WAITED", "HELD", "END", "OWNER", "TOKEN", "NOTE"}}
	for _, e := range entries {
		table = append(table, grantRow(grantOf(e, now)))
	}
	fit(table, terminalWidth(os.Stdout), 3, 4, 6) // end, owner, note
	return terminal.Table(w, table, nil)
}

func grantOf(e history.Entry, now time.Time) grantView {
	v := grantView{
		Token: e.Token, Owner: e.Owner, Note: note.Parse(e.Note).Text, Slot: slotOf(e.Note),
		Kind: e.Kind, Permits: e.Permits, Asked: e.Asked,
		Granted: e.Granted, Ended: e.Ended, Held: e.Held, End: e.End, Reason: e.Reason, BrokenBy: e.BrokenBy,
		Missing: e.Missing,
	}
	if !e.Asked.IsZero() && !e.Granted.IsZero() {
		v.WaitedMS = max(e.Granted.Sub(e.Asked), 0).Milliseconds()
	}
	end := e.Ended
	if e.Held {
		end = now
	}
	if !e.Granted.IsZero() && !end.IsZero() {
		v.HeldMS = max(end.Sub(e.Granted), 0).Milliseconds()
	}
	return v
}

// grantRow shows a grant as a row of a table.
func grantRow(v grantView) []string {
	granted, waited, held := "-", "-", "-"
	if !v.Granted.IsZero() {
		granted = clockTime(v.Granted)
	}
	if !v.Granted.IsZero() && !v.Asked.IsZero() {
		waited = span(time.Duration(v.WaitedMS) * time.Millisecond)
	}
	if !v.Granted.IsZero() && (v.Held || !v.Ended.IsZero()) {
		held = span(time.Duration(v.HeldMS) * time.Millisecond)
	}
	end := cmp.Or(v.End, "no end was written")
	switch {
	case v.Held:
		end = "still held"
	case v.BrokenBy != "":
		end = "broken by " + plain(v.BrokenBy)
	}
	if v.Reason != "" {
		end += ": " + plain(v.Reason)
	}
	if v.Missing > 0 {
		end += fmt.Sprintf(" (%d entries before are missing)", v.Missing)
	}
	return []string{granted, waited, held, end, plain(v.Owner), v.Token.String(), shownNote(v.Slot, v.Note)}
}
