package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/slot"
)

const onceHelp = `once runs COMMAND at most once successfully per slot, over all machines that use the
same store. A slot is an hour, a day, a part of a day such as 5m, or a time that you name:

  fencelock once report --slot hour -w 50m -- ./report.sh    # in every machine's crontab
  fencelock once sync --slot 5m -q -w 4m -- ./sync.sh        # and nothing in the mail
  fencelock once report --slot 2026-11-20T20:00Z -- ./report.sh
  fencelock once bill --slot "$(date +%Y-%m-01)" --tz Local -w 12h -- ./bill.sh    # each month

A slot is done when it ended with exit code 0. Then once exits 0 and says when and by whom.
A command that fails leaves the slot open. The slots of a name are ordered: after one is
done, an earlier one cannot run any more. Then once exits 75 (or -E) and says so.

Hours and days are those of UTC, or of --tz. Parts of a day are counted from midnight there,
and must divide a day: 5m, 6h, not 7h. Slots follow the clock of the zone: each time of a
cron line such as "0 */6 * * *" begins one, also on days when the clock jumps. A clock that
goes back begins a slot again only if the slot is no longer than what is repeated.

If another machine is running the slot, once waits for it, and runs the command itself if
that machine dies or fails. So wait with -w for less than a period. With -n once exits 0 at
once while another machine runs the slot, and nobody makes up for a run that fails there.

Without --at the slot is the one of now. A start that is late, or early by a moment, takes
another slot then. --at is the time for which it was scheduled; half a minute before a slot
counts for that slot. It is an RFC 3339 time, a time in --tz, Unix seconds, milliseconds or
microseconds, or the name of a job of a Kubernetes CronJob. Empty means now. Of a time that the
clock of --tz shows twice, the one nearer to now is meant.

  --at "$(date +%FT%H:%M%z)" --tz Local     # cron (write \% for %): the minute of the line
  --at "${TRIGGER_TIMER_REALTIME_USEC}"     # systemd 252 and later, in ExecStart
  --at "$(JOB)"                             # Kubernetes: JOB is the label job-name of the pod

Flags, exit codes and guarantees are otherwise those of run.`

func newOnce(c *cli) *cobra.Command {
	f := &holdFlags{}
	var length, zone, scheduled string
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
			at, err := parseSlot(length, zone, scheduled, time.Now())
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
	cmd.Flags().StringVar(&length, "slot", "",
		"hour, day, a part of a day such as 5m, or a time such as 2026-11-20T20:00Z")
	cmd.Flags().StringVar(&zone, "tz", "UTC", "time zone of --slot and --at, such as Asia/Shanghai")
	cmd.Flags().StringVar(&scheduled, "at", "", "the time for which this start was scheduled: its slot is taken")
	return cmd
}

// parseSlot finds the slot that the scheduled time is in, or now is in, or reads the one that
// was named.
func parseSlot(text, zone, scheduled string, now time.Time) (time.Time, error) {
	tz, err := time.LoadLocation(zone)
	if err != nil {
		return time.Time{}, usage("--tz %s is no time zone; want a name such as Asia/Shanghai, UTC or Local",
			quote(zone))
	}
	scheduled = strings.TrimSpace(scheduled)
	if text == "" {
		return time.Time{}, usage("--slot is missing; want hour, day, 5m, or a time such as 2026-11-20T20:00Z")
	}
	d, isLength := slotLength(text)
	switch {
	case !isLength && scheduled != "":
		return time.Time{}, usage("--slot %s names the slot itself; leave out --at, or use --slot hour, day or 5m",
			quote(text))
	case !isLength:
		return namedSlot(text, tz)
	case d < time.Second || (24*time.Hour)%d != 0:
		return time.Time{}, usage("--slot %v does not divide a day; want for example 5m, 15m, 1h or 6h", d)
	case scheduled == "":
		return slot.Start(now.In(tz), d), nil
	}
	at, err := parseAt(scheduled, tz, now)
	if err != nil {
		return time.Time{}, err
	}
	if at.After(now.Add(24 * time.Hour)) {
		return time.Time{}, usage("--at %s is %s from now; want the time for which this start was scheduled",
			quote(scheduled), span(at.Sub(now)))
	}
	return slot.Near(at.In(tz), d), nil
}

// slotLength is how long the slots of --slot are, if it is a length.
func slotLength(text string) (time.Duration, bool) {
	switch text {
	case "hour":
		return time.Hour, true
	case "day":
		return 24 * time.Hour, true
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

// namedSlot reads a slot that is named by its time. The name means the same at all times: the first of two
// moments at which the clock shows it.
func namedSlot(text string, tz *time.Location) (time.Time, error) {
	t, ok := parseTime(text, tz, time.Time{})
	if !ok {
		return time.Time{}, usage("--slot %s cannot be read; want hour, day, 5m, or a time such as 2026-11-20T20:00Z",
			quote(text))
	}
	return t, nil
}

// timeForms are those of times, with an offset and without.
var timeForms = []string{
	time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04Z0700", "2006-01-02T15:04:05Z0700",
	"2006-01-02T15:04:05", "2006-01-02T15:04",
}

// parseTime reads a time, in tz unless it names its offset. A date is when its day begins. Of two
// moments at which the clock shows the same, the one next to now is meant.
func parseTime(text string, tz *time.Location, now time.Time) (time.Time, bool) {
	for _, form := range timeForms {
		t, err := time.ParseInLocation(form, text, tz)
		if err != nil {
			continue
		}
		if !strings.Contains(form, "Z07") {
			shown, _ := time.Parse(form, text)
			t = showing(shown, t, now)
		}
		return t, t.Unix() > 0
	}
	t, err := time.ParseInLocation(time.DateOnly, text, tz)
	if err != nil || t.Unix() <= 0 || t.Year() > 2261 {
		return t, false // beyond what a time.Duration since 1970 can count
	}
	// Not every day has a midnight.
	return slot.Start(t.Add(12*time.Hour), 24*time.Hour), true
}

// showing returns the moment next to now at which the clock in the zone of t shows what shown says in UTC.
// t is one of them, or is next to a jump of the clock over them: then it is as long after the jump as was
// shown.
func showing(shown, t, now time.Time) time.Time {
	clock := func(t time.Time) time.Time {
		_, offset := t.Zone()
		return t.UTC().Add(time.Duration(offset) * time.Second)
	}
	if short := shown.Sub(clock(t)); short != 0 {
		return t.Add(max(short, 0))
	}
	const jump = 3 * time.Hour // no clock goes back further, but for changes of the calendar
	for _, near := range []time.Time{t.Add(-jump), t.Add(jump)} {
		other := t.Add(clock(t).Sub(t.UTC()) - clock(near).Sub(near.UTC()))
		if clock(other).Equal(shown) && other.Sub(now).Abs() < t.Sub(now).Abs() {
			t = other
		}
	}
	return t
}

// cronJob is the name that a Kubernetes CronJob gives a job: its own, and the minutes since
// 1970 of the time for which the job was scheduled.
var cronJob = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*)?-([0-9]{8})$`)

// parseAt reads the time for which a start was scheduled.
func parseAt(text string, tz *time.Location, now time.Time) (time.Time, error) {
	if job := cronJob.FindStringSubmatch(text); job != nil {
		minutes, _ := strconv.ParseInt(job[2], 10, 64)
		return time.Unix(60*minutes, 0), nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		switch { // a number of seconds has at most ten digits until the year 2286
		case n < 1e10:
			return time.Unix(n, 0), nil
		case n < 1e13:
			return time.UnixMilli(n), nil
		case n < 1e16:
			return time.UnixMicro(n), nil
		}
	}
	t, ok := parseTime(text, tz, now)
	if !ok {
		return t, usage("--at %s cannot be read; want a time such as 2026-11-20T20:00Z, Unix seconds, or the name of "+
			"a job of a CronJob", quote(text))
	}
	return t, nil
}

func (c *cli) once(f *holdFlags, at time.Time, r *report) error {
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
	ran, err := h.Once(h.ctx, f.name, at, func(_ context.Context, l *fencelock.Lease) error {
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
			h.sayDone(at)
		}
		return nil
	}
	if errors.Is(err, fencelock.ErrSlotPassed) {
		return h.slotPassed(at)
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

// slotPassed is the end of once for a slot that cannot run any more.
func (h *holding) slotPassed(at time.Time) error {
	text := fmt.Sprintf("%s: slot %s cannot run any more, because a later one is done", quote(h.f.name),
		at.Format(slotForm))
	if line, err := h.Line(context.Background(), h.f.name); err == nil && !line.Done.IsZero() {
		text += ": " + doneText(line, at)
	}
	text += "; whether this one was done before is not known"
	return h.f.notAcquired(fail(exitNotAcquired, "%s", text))
}

const slotForm = "2006-01-02 15:04:05 -07:00"

// sayDone says when the slot was done, and by whom, as far as the store knows.
func (h *holding) sayDone(at time.Time) {
	text := "slot " + at.Format(slotForm) + " is done"
	if line, err := h.Line(context.Background(), h.f.name); err == nil && !line.Done.IsZero() {
		text += ": " + doneText(line, at)
	}
	say("%s: %s", quote(h.f.name), text)
}

// doneText says when the last run was finished, by whom and for which slot, if not for that of at.
func doneText(l fencelock.Line, at time.Time) string {
	text := "finished at " + l.Done.In(at.Location()).Format(slotForm) + " by " + plain(l.DoneBy)
	if !l.Slot.Equal(at) {
		text += ", as slot " + l.Slot.In(at.Location()).Format(slotForm)
	}
	if l.Slot.After(time.Now().Add(24 * time.Hour)) {
		text += ", which is still to come: until then nothing runs under this name; " +
			"look for a wrong clock, or a --slot given by hand, and use another name meanwhile"
	}
	return text
}
