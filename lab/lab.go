// Package lab shows why the locks of well-known tutorials fail.
//
// Each [Experiment] has a scheme as it is taught, written out as small Go functions that
// run on a real Redis, PostgreSQL (19, 20) or etcd (21), or in memory (9, 17, 18), and the
// schedule of events that breaks it.
// One goroutine drives the schedule, so that it plays the same way each time; the time that
// must pass is moved by PEXPIRE instead of waiting. What the clients believed is recorded
// as a history and judged by package history, which also judges the tests of the
// library itself. Then the same schedule is played against fencelock and judged by
// the same rules.
//
// The locks here are for looking at, not for use.
package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/internal/history"
)

// Experiment is one scheme, the schedule that breaks it, and the same schedule against
// this library.
type Experiment struct {
	Number int
	Story
	Breaks   []history.Rule // exactly these, in the order of history.All
	overlaps bool           // as Note says, fencelock does not promise that one alone holds the first key
	scheme   func(s *stage) // the schedule against the scheme
	ours     func(s *stage) // the same schedule against fencelock
}

// All returns the experiments by number.
func All() []Experiment {
	all := []Experiment{
		setnxThenExpire, getSetWithClientTime, luaWithoutOwner, plainDelete, getThenDelete, noWatchdog,
		oneMaster, redlockWithoutToken, pausedHolder, tokenAsLuaNumber, goroutineID, countInTwoSteps,
		pubSubOnly, headOfTheQueue, watchdogOutlivesWork, sharedStopChannel,
		uniqueRow, bareNode, rowLock, versionColumn, oneSession, leaseTimeWithoutWatchdog,
	}
	for i := range all {
		all[i].Number, all[i].Story = i+1, story(i+1)
	}
	return all
}

// Step is one moment of a run.
type Step struct {
	Actor string   // "A", "B", "C", or "" for what happens to everybody
	Text  Text     // what it does
	Calls []string // what was sent, and answered
	Holds []Text   // what the store holds after it
	Broke []history.Rule
	begun time.Duration
}

// Run is a schedule as it was played.
type Run struct {
	Steps      []Step
	Events     []history.Event
	Violations []history.Violation
	Excused    []history.Violation // of what is not promised under such a fault
}

// Broken returns the rules that were broken.
func (r Run) Broken() []history.Rule { return history.Broken(r.Violations) }

// Result is an experiment as it was played.
type Result struct {
	Scheme, Ours Run
}

// AsTold reports whether everything behaved as the text says: the scheme breaks
// exactly the rules it is said to break, and the counterpart none.
func (r Result) AsTold(e Experiment) bool {
	return slices.Equal(r.Scheme.Broken(), e.Breaks) && len(r.Ours.Violations) == 0
}

// Play plays an experiment in dir, an empty folder in which it starts the
// servers it needs, each on a free loopback port; they have ended when it returns. It
// takes a second or two, and a minute at most.
func (e Experiment) Play(ctx context.Context, dir string) (r Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if r.Scheme, err = play(ctx, dir, e.scheme, false); err != nil {
		return r, fmt.Errorf("scheme %d: %w", e.Number, err)
	}
	if r.Ours, err = play(ctx, dir, e.ours, e.overlaps); err != nil {
		return r, fmt.Errorf("scheme %d against fencelock: %w", e.Number, err)
	}
	return r, nil
}

func play(ctx context.Context, dir string, schedule func(*stage), overlaps bool) (Run, error) {
	s := &stage{ctx: ctx, dir: dir, start: time.Now(), claims: map[wish]string{}, keys: []string{firstKey}}
	if err := s.play(schedule); err != nil {
		return Run{}, fmt.Errorf("step %d: %w", len(s.steps), err)
	}
	// fencelock reads the line again once a second if it is told nothing. A busy machine adds
	// something to that, and to a lease.
	limits := history.Options{Stuck: lease + lease/100 + 3*time.Second, Wake: 3 * time.Second}
	found, err := history.Check(s.events, limits)
	if err != nil {
		return Run{}, err
	}
	r := Run{Steps: s.steps, Events: s.events}
	for _, v := range found {
		if overlaps && v.Rule == history.Exclusion && v.Key == firstKey {
			r.Excused = append(r.Excused, v)
			continue
		}
		r.Violations = append(r.Violations, v)
		for i, step := range slices.Backward(s.steps) {
			if step.begun <= v.At {
				s.steps[i].Broke = append(step.Broke, v.Rule)
				break
			}
		}
	}
	return r, nil
}

// lease is that of the schemes: 30 s, as in most texts. fencelock's are the same, but
// for those that have to end while somebody watches.
const lease = 30 * time.Second
