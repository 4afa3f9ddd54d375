package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
)

const onceHelp = `once runs COMMAND at most once successfully per slot, over all machines that use the
same store. A slot is an hour, a day, a part of a day such as 5m, or a time that you name:

  fencelock once report --slot hour -- ./report.sh           # in every machine's crontab
  fencelock once sync --slot 5m -q -n -- ./sync.sh           # and nothing in the mail
  fencelock once report --slot 2026-11-20T20:00Z -- ./report.sh

The slots of a name are ordered. A slot is done when it, or a later slot, ended with
exit code 0. Then once exits 0 and says when and by whom. A command that fails leaves
the slot open. Hours and days are those of UTC, or of --tz. Parts of a day are counted
from midnight there, and must divide a day: 5m, 6h, not 7h.

If another machine is running the slot, once waits for it; with -n it exits 0 at once.
Flags, exit codes and guarantees are otherwise those of run.`

func newOnce(c *cli) *cobra.Command {
	f := &holdFlags{}
	var slot, zone string
	cmd := &cobra.Command{
		Use:   "once NAME --slot hour|day|5m|TIME [flags] -- COMMAND [ARG...]",
		Short: "Run a command at most once successfully per slot",
		Long:  onceHelp,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.parse(cmd, args)
			if err != nil {
				return err
			}
			at, err := parseSlot(slot, zone, time.Now())
			if err != nil {
				return err
			}
			return r.write(c.once(f, at, r))
		},
	}
	f.add(cmd)
	f.addReport(cmd)
	f.addProgress(cmd)
	f.addRevoke(cmd)
	cmd.Flags().StringVar(&slot, "slot", "",
		"hour, day, a part of a day such as 5m, or a time such as 2026-11-20T20:00Z")
	cmd.Flags().StringVar(&zone, "tz", "UTC", "time zone of --slot, such as Asia/Shanghai")
	return cmd
}

// parseSlot finds the slot that now is in, or reads the one that was named.
func parseSlot(text, zone string, now time.Time) (time.Time, error) {
	tz, err := time.LoadLocation(zone)
	if err != nil {
		return time.Time{}, usage("--tz %s is no time zone; want a name such as Asia/Shanghai, UTC or Local",
			quote(zone))
	}
	now = now.In(tz)
	switch text {
	case "":
		return time.Time{}, usage("--slot is missing; want hour, day, 5m, or a time such as 2026-11-20T20:00Z")
	case "hour":
		// Not by its number: when clocks go back, two hours have the same.
		into := time.Duration(now.Minute())*time.Minute + time.Duration(now.Second())*time.Second +
			time.Duration(now.Nanosecond())
		return now.Add(-into), nil
	case "day":
		y, m, d := now.Date()
		return time.Date(y, m, d, 0, 0, 0, 0, tz), nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return slotOfDay(now, d)
	}
	for _, form := range []string{
		time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly,
	} {
		if t, err := time.ParseInLocation(form, text, tz); err == nil {
			if t.IsZero() {
				break
			}
			return t, nil
		}
	}
	return time.Time{}, usage("--slot %s cannot be read; want hour, day, 5m, or a time such as 2026-11-20T20:00Z",
		quote(text))
}

// slotOfDay finds the slot of length d that now is in, counted from midnight.
func slotOfDay(now time.Time, d time.Duration) (time.Time, error) {
	const day = 24 * time.Hour
	if d < time.Second || day%d != 0 {
		return time.Time{}, usage("--slot %v does not divide a day; want for example 5m, 15m, 1h or 6h", d)
	}
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	return midnight.Add(now.Sub(midnight).Truncate(d)), nil
}

func (c *cli) once(f *holdFlags, slot time.Time, r *report) error {
	path, err := f.prepare()
	if err != nil {
		return err
	}
	h, err := c.begin(f, r)
	if err != nil {
		return err
	}
	defer h.close()

	var j *job
	ran, err := h.Once(h.ctx, f.name, slot, func(_ context.Context, l *fencelock.Lease) error {
		if stopped := h.settle(); stopped != nil {
			return stopped
		}
		r.acquired(l)
		var err error
		j, err = h.runSlot(l, path)
		return err
	}, f.options(h.began)...)
	stopped := h.settle()
	switch {
	case j != nil:
		return h.slotEnd(j, r, err)
	case stopped != nil:
		return stopped
	case err == nil && !ran:
		r.Why = doneAlready
		if !f.quiet {
			h.sayDone(slot)
		}
		return nil
	}
	return h.slotRefused(err)
}

// errFailed leaves the slot open: every end of the command but success is an error.
var errFailed = errors.New("the command did not succeed")

// runSlot runs the command. The job is nil if the command was not started.
func (h *holding) runSlot(l *fencelock.Lease, path string) (*job, error) {
	j, err := h.runUnder(l, path)
	if err != nil {
		return nil, err
	}
	if o := j.outcome(nil); o.why != byItself || o.status.Code != 0 {
		return j, errFailed
	}
	return j, nil
}

// slotEnd is the end of once after the command ran. err is that of Client.Once.
func (h *holding) slotEnd(j *job, r *report, err error) error {
	o := j.outcome(err)
	r.ended(o)
	if err != nil && !errors.Is(err, errFailed) && !errors.Is(err, fencelock.ErrLost) {
		return fail(exitUnavailable, "%s: the command succeeded, but nobody confirmed that its slot is done: %s; "+
			"it may be run again", quote(h.f.name), cause(err))
	}
	return o.exit(h.f, r.Token)
}

// slotRefused is the end of once when the lock was not had.
func (h *holding) slotRefused(err error) error {
	if h.f.nowait && errors.Is(err, fencelock.ErrNotAcquired) {
		var held *fencelock.HeldError
		errors.As(err, &held)
		if !h.f.quiet {
			say("%s is running elsewhere: %s; nothing was done", quote(h.f.name), heldBy(held))
		}
		return nil
	}
	return h.explain(err)
}

// sayDone says when the slot was done, and by whom, as far as the store knows.
func (h *holding) sayDone(slot time.Time) {
	const form = "2006-01-02 15:04:05 MST"
	text := "slot " + slot.Format(form) + " is done"
	line, err := h.Line(context.Background(), h.f.name)
	if run := line.Done; err == nil && run != nil {
		text += ": finished at " + run.Done.In(slot.Location()).Format(form) + " by " + plain(run.Owner)
		if !run.Slot.Equal(slot) {
			text += ", as slot " + run.Slot.In(slot.Location()).Format(form)
		}
		if run.Slot.After(time.Now().Add(24 * time.Hour)) {
			text += ", which is still to come: until then nothing runs under this name; " +
				"look for a wrong clock, or a --slot given by hand, and use another name meanwhile"
		}
	}
	say("%s: %s", quote(h.f.name), text)
}
