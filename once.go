package fencelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

const opOnce = "once"

// Once runs f at most once successfully per slot, over all machines. Slots of a key are
// times, and ordered: after a slot has been finished, neither it nor an earlier one runs.
// The zero time means once forever. Compute the slot before the call, so that waiting does
// not move it, from the time for which the run was scheduled if that is known:
//
//	slot := time.Now().UTC().Truncate(time.Hour)
//	ran, err := client.Once(ctx, "report", slot, f)
//
// Where a timer starts the call at each tick, take Round instead of Truncate: a timer
// may fire a moment before its time, and other machines have other clocks. Truncate and
// Round count elapsed time: in a zone whose clocks jump, take time.Date for slots that
// follow its clock. If the clock of
// one machine is a year ahead, its run marks all slots of this year as done for the others.
//
// Once waits until it holds key alone; Wait(0) gives up with ErrNotAcquired while
// another call runs. Then, if the slot is done, Once returns false and nil, and if only a
// later one is known to be done, false and ErrSlotPassed. Otherwise
// it runs f under the lease, as Do does, and returns true. If f succeeds and the
// lease is still held, the slot is noted as done in the step that releases the
// lock. If f fails, the slot stays open and the error is f's. If the lease was lost,
// or the store did not confirm the release, the error says so, and the slot may be run again:
// a call that returned true and an error may be repeated, with a larger token. An f that
// releases the lease itself, or keeps a share of it, has not finished: that is an error, too.
//
// It takes the options of Lock but Reentrant.
//
// It costs two round trips. A slot that is done stays done: the record does not expire.
func (c *Client) Once(
	ctx context.Context, key string, slot time.Time,
	f func(ctx context.Context, l *Lease) error, opts ...Option,
) (ran bool, err error) {
	if err := c.info.canOnce(slot); err != nil {
		return false, wrap(opOnce, key, err)
	}
	r := request{op: opOnce, key: key, takes: onceTakes, capacity: driver.RW, weight: driver.RW}
	l, err := c.acquire(ctx, r, opts)
	if err != nil {
		return false, err
	}
	t := l.claim.ticket()
	if last, ok := readMark(t.Mark); ok && !last.slot.Before(slot) {
		l.dropMinHold() // nothing runs, so nothing is held apart
		err := l.Release(ctx)
		if errors.Is(err, ErrLost) || errors.Is(err, ErrUnavailable) {
			err = nil // the slot is done in any case
		}
		if err == nil && !slot.IsZero() && last.slot.After(slot) {
			err = wrap(opOnce, key, fmt.Errorf("%w: slot %s was done by %s", ErrSlotPassed,
				last.slot.Format(time.RFC3339Nano), last.owner))
		}
		return false, err
	}

	returned := false
	defer func() {
		if !returned { // f panicked
			_ = l.Release(ctx)
		}
	}()
	ferr := f(&l.ctx, l)
	returned = true
	if ferr != nil {
		return true, withLoss(ferr, l.Release(ctx))
	}
	return true, l.releaseWith(ctx, writeMark(run{slot, time.Now(), t.Owner}))
}

// markTime has one width, so that marks are ordered as their slots are: the store compares bytes,
// and keeps the larger mark.
const markTime = "2006-01-02T15:04:05.000000000Z"

// run is a run of Once that has finished.
type run struct {
	slot, done time.Time
	owner      string
}

// A mark is three fields, so that a person who looks into the store can read it:
// the slot, when it was done, and by whom. The slot of once forever is the zero time.
func writeMark(r run) string {
	return fmt.Sprintf("%s %s %s", r.slot.UTC().Format(markTime), r.done.UTC().Format(markTime), r.owner)
}

// readMark reads what Once left on a line. It reports false for a mark that Once did not
// write, and for none.
func readMark(m string) (run, bool) {
	fields := strings.SplitN(m, " ", 3)
	if len(fields) != 3 {
		return run{}, false
	}
	slot, err1 := time.Parse(time.RFC3339Nano, fields[0])
	done, err2 := time.Parse(time.RFC3339Nano, fields[1])
	return run{slot, done, fields[2]}, err1 == nil && err2 == nil
}
