package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/doctor"
	"github.com/fencelock/fencelock/driver"
)

// A race of doctor --race.
const (
	racers      = 32
	raceRounds  = 100
	raceClients = 8 // each with as many connections as it has racers
)

// raceView holds the result of doctor --race. Fields only ever grow in number.
type raceView struct {
	Store      string `json:"store"`
	Excludes   bool   `json:"excludes"`
	Racers     int    `json:"racers"`
	Rounds     int    `json:"rounds"`
	One        int    `json:"one_winner"`
	None       int    `json:"no_winner"`
	Several    int    `json:"several_winners"`
	Most       int    `json:"most_winners"`
	NotRisen   int    `json:"tokens_not_risen"`
	Slow       int    `json:"slow_rounds"`
	Unanswered int    `json:"requests_unanswered"`
	Error      string `json:"last_error,omitempty"`
	Line       string `json:"line,omitempty"` // to paste
}

// race lets racers try to take one lock.
func (c *cli) race(asJSON bool) error {
	s, err := c.findStore()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s.conns = racers / raceClients
	var backends []driver.Backend
	for range raceClients {
		open, err := s.connect(ctx, "", firstContact)
		if err != nil {
			return err
		}
		defer closeSoon(open.Close)
		backends = append(backends, open.Backend)
	}
	o, err := doctor.Race(ctx, backends, racers, raceRounds)
	if err != nil {
		return fail(exitNotAcquired, "interrupted; what was left on %s ends within seconds", s)
	}
	v := newRaceView(s.String(), backends[0].Info().Name, &o)
	if asJSON {
		err = writeJSON(c.out, v, true)
	} else {
		_, err = fmt.Fprint(c.out, v.text())
	}
	switch {
	case err != nil:
		return err
	case o.Several+o.NotRisen > 0:
		return silently(exitConfig)
	case !o.Excludes():
		return silently(exitUnavailable)
	}
	return nil
}

func newRaceView(store, kind string, o *doctor.Outcome) *raceView {
	v := &raceView{
		Store: store, Excludes: o.Excludes(), Racers: o.Racers, Rounds: o.Rounds, One: o.One, None: o.None,
		Several: o.Several, Most: o.Most, NotRisen: o.NotRisen, Slow: o.Slow, Unanswered: o.Unanswered,
	}
	if o.Err != nil {
		v.Error = cause(o.Err)
	}
	if v.Excludes {
		v.Line = fmt.Sprintf("%s, %d rounds of %d racers: never more than one winner (fencelock %s, %s)",
			kind, o.Rounds, o.Racers, buildVersion().Version, time.Now().Format(time.DateOnly))
	}
	return v
}

// text returns the result for people.
func (v *raceView) text() string {
	text := fmt.Sprintf("%s\n\n%d rounds of %d racers: one won %d rounds, several won %d, nobody won %d.\n",
		v.Store, v.Rounds, v.Racers, v.One, v.Several, v.None)
	note := func(n int, format string, args ...any) {
		if n > 0 {
			text += indented(fmt.Sprintf(format, append([]any{n}, args...)...))
		}
	}
	if v.Several > 0 {
		note(v.Most, "Up to %d clients held the lock at once. The store does not apply the condition under which "+
			"a lock is granted, or the address leads to several stores, such as two masters behind one load balancer. "+
			"Do not use it for locks.")
	}
	note(v.NotRisen, "%d grants had a token that was not larger than those before, so a fence refuses the new holder. "+
		"The address leads to several stores, or the store forgets what it has written.")
	note(v.None, "Nobody won %d rounds: the lock of the round before had not been released, or no request was "+
		"answered.")
	note(v.Unanswered, "%d requests had no answer, the last with: %s", plain(v.Error))
	note(v.Slow, "%d more rounds were too slow to count.")
	if v.Line != "" {
		text += "\nTo paste: " + v.Line + "\n"
	}
	return text
}
