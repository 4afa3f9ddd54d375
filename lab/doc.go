// Package lab shows why the locks of well-known tutorials fail.
//
// Each [Experiment] has a scheme as it is taught, written out as a small Go type that
// runs on a real Redis, and the schedule of events that breaks it. One goroutine
// drives the schedule, so that it plays the same way each time; the time that must
// pass is moved by PEXPIRE instead of waiting. What the clients believed is recorded
// as a history and judged by package history, which also judges the tests of the
// library itself. Then the same schedule is played against fencelock and judged by
// the same rules.
//
// The types here are for looking at, not for use.
package lab
