package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/child"
)

// job is a command that runs while a lease is held. One goroutine owns it.
type job struct {
	f       *holdFlags
	lease   *fencelock.Lease
	signals <-chan os.Signal
	renewed <-chan struct{}
	maxEnd  time.Time // zero: no --max-hold

	progress *progress // nil without --progress

	c      *child.Child
	status *child.Status // how the command ended; others that it started may live on
	phase  phase
	why    reason
	err    error         // what ended the lease, or threatened to
	killAt time.Time     // when everything is killed, once it was asked to end
	past   time.Duration // from the end of the lease until it was asked to end

	watchdogEnd time.Time // the end of the lease that the watchdog knows
	announced   bool      // that others outlive the command
	lossTold    bool      // with --on-loss ignore
	leftover    time.Time // since when they do
	untouchable bool      // it was said that something cannot be ended
	watchdogs   int       // those that were replaced
}

type phase int

const (
	running phase = iota
	ending        // was sent TERM
	killed        // was sent KILL
)

// reason is why the command ended.
type reason string

const (
	byItself  reason = "exited"
	bySignal  reason = "signal"
	lockLost  reason = "lost"
	stalled   reason = "stalled" // and lost its lock
	heldToMax reason = "max_hold"
)

// loss reports whether the lock was lost, or was about to be.
func (r reason) loss() bool { return r == lockLost || r == stalled }

// lossOf is the reason of an end of the lease by err.
func lossOf(err error) reason {
	switch {
	case errors.Is(err, fencelock.ErrMaxHold):
		return heldToMax
	case errors.Is(err, fencelock.ErrStalled):
		return stalled
	}
	return lockLost
}

// run starts the command and returns when nothing is left of it that works under the lock:
// not a moment later may the lock be released, nor earlier.
func (j *job) run(c child.Command) error {
	c.Left = j.left
	k, err := child.Start(c)
	j.progress.begin()
	if err != nil {
		return err
	}
	j.c = k
	defer k.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	lost, revoked := j.lease.Context().Done(), j.lease.Revoked()
	for {
		select {
		case s := <-k.Exited:
			j.commandEnded(s)
		case s := <-k.Stopped:
			if k.Stop(s) {
				// Whatever stopped this process may have lasted longer than the lease.
				j.step()
				k.Continue()
			}
		case s := <-j.signals:
			j.forward(s)
		case <-j.renewed:
		case <-k.Changed:
		case g := <-k.WatchdogLost:
			j.replaceWatchdog(g)
		case <-lost:
			lost = nil
		case <-revoked:
			revoked = nil
			j.passRevocation()
		case <-timer.C:
		}
		next := j.step()
		if j.over() {
			j.awaitInner()
			return nil
		}
		timer.Reset(next)
	}
}

// awaitInner gives the watchdog of a fencelock inside, which was killed with the rest, a
// moment to end what that one ran. With subreapers that has ended already.
func (j *job) awaitInner() {
	if j.phase == killed && !child.Subreaper {
		time.Sleep(j.f.margin() / 4)
	}
}

// step does what is due by the clocks, and says when to look again.
func (j *job) step() time.Duration {
	if j.phase == running {
		j.checkLease()
	}
	if j.phase == ending && time.Until(j.killAt) <= 0 {
		j.phase = killed
		j.sayUntouchable()
	}
	if j.phase == killed && !j.c.Empty() {
		j.c.Kill() // again and again: what is killed may have started something meanwhile
	}
	next := time.Hour
	switch j.phase {
	case running:
		next = min(j.leaseLeft()-j.f.notice(), j.maxLeft()-j.f.grace.d)
	case ending:
		next = time.Until(j.killAt)
	case killed:
		next = min(time.Since(j.killAt)/16+time.Millisecond, time.Second)
	}
	if j.status != nil {
		// No signal tells of the end of the last process of a group that are others'
		// children.
		next = min(next, time.Since(j.leftover)/4+5*time.Millisecond, time.Second)
	}
	return max(next, time.Millisecond)
}

// checkLease ends the command before its lease, or --max-hold, ends.
func (j *job) checkLease() {
	if left := j.maxLeft(); left <= j.f.grace.d {
		if !j.why.loss() {
			j.why = heldToMax
		}
		j.end(left - j.f.margin())
		return
	}
	if err := j.lease.Err(); err != nil {
		j.leaseEnded(err)
		return
	}
	if j.f.loss == lossIgnore {
		return
	}
	end := j.lease.Deadline()
	if end.Sub(j.watchdogEnd).Abs() > time.Millisecond { // a notice moves it back
		// Here and not where the renewal is told: that may wait for people to read what is
		// said, and this must not.
		j.watchdogEnd = end
		j.c.Extend()
	}
	if left := time.Until(end); left <= j.f.notice() {
		j.why, j.err = lockLost, j.notRenewed()
		switch {
		case !j.maxEnd.IsZero() && j.maxLeft()-left < j.f.margin():
			// What ends here is the longest holding time, not a lease that could not be
			// renewed: the library counts it from a moment earlier than we do.
			j.why = heldToMax
		case j.progress.stalled():
			j.why, j.err = stalled, nil
		}
		j.end(left - j.f.margin())
	}
}

// leaseEnded ends the command of a lease that has ended already.
func (j *job) leaseEnded(err error) {
	j.err, j.why = err, lossOf(err)
	switch {
	case j.f.loss == lossIgnore && j.why.loss():
		if !j.lossTold && (j.f.verbose && j.status == nil || j.announced) {
			j.lossTold = true
			say("%s was lost: %v; the command runs on without it", quote(j.f.name), err)
		}
	case errors.Is(err, fencelock.ErrBroken) && j.f.loss == lossTerm:
		// Somebody took the lock away on purpose, or the store did. It is somebody else's
		// by now, and no hurry changes that: the command may tidy up.
		j.end(j.f.grace.d)
	default:
		j.end(0)
	}
}

// end asks the group to end, and gives it d to do so.
func (j *job) end(d time.Duration) {
	j.phase, j.past = ending, time.Since(j.lease.Deadline())
	d = min(d, j.f.grace.d)
	if d > 0 && !(j.f.loss == lossKill && j.why.loss()) {
		j.c.Terminate()
		if j.status != nil {
			j.c.SignalOthers(child.SignalNamed("TERM"), true)
		}
	}
	j.killAt = time.Now().Add(d)
	j.c.Extend()
	j.sayUntouchable()
}

// commandEnded notes how the command ended. One that was asked to end, or died of a signal,
// can have left processes in other groups and sessions that were to end with it: they are
// asked, too. (Those of su and script hear of it from the command, so not before.) One
// that ended by itself has left there what it wanted to leave.
func (j *job) commandEnded(s child.Status) {
	j.status, j.leftover = &s, time.Now()
	if j.phase == running && s.Signal == 0 {
		return
	}
	ask := "TERM"
	if j.phase == running && (s.Name == "SIGINT" || s.Name == "SIGHUP" || s.Name == "SIGQUIT") {
		ask = s.Name
	}
	j.c.SignalOthers(child.SignalNamed(ask), true)
}

// sayUntouchable says at once what no signal of this process can end.
func (j *job) sayUntouchable() {
	if j.untouchable {
		return
	}
	left := j.c.Untouchable()
	if len(left) == 0 {
		return
	}
	j.untouchable, j.announced = true, true
	why := "is about to end"
	if j.why.loss() {
		why = "was lost"
		if j.err != nil {
			why += ": " + lossText(j.err)
		}
	}
	say("%s (token %s) %s, and fencelock may not end %s; what is not ended runs on without the lock",
		quote(j.f.name), j.lease.Token(), why, strings.Join(left, ", "))
}

const forever = time.Duration(math.MaxInt64)

// leaseLeft is how long the lease lasts if it is not renewed.
func (j *job) leaseLeft() time.Duration {
	if j.f.loss == lossIgnore {
		return forever
	}
	return time.Until(j.lease.Deadline())
}

func (j *job) maxLeft() time.Duration {
	if j.maxEnd.IsZero() {
		return forever
	}
	return time.Until(j.maxEnd)
}

// left is when the watchdog kills the group, if this process does not: a little
// later than this process would.
func (j *job) left() time.Duration {
	if j.phase != running {
		return time.Until(j.killAt) + j.f.margin()/2
	}
	return min(j.leaseLeft(), j.maxLeft()) - j.f.margin()/2
}

func (j *job) forward(s os.Signal) {
	if child.Continues(s) {
		// This process was stopped, and its lease may have ended meanwhile. What must
		// not run any more is killed before it is continued.
		j.step()
		j.c.Continue()
		return
	}
	j.c.Signal(s)
	if j.status != nil {
		j.c.SignalOthers(s, j.endsAll())
	}
}

// replaceWatchdog puts another watchdog in place of one that ended or was stopped.
func (j *job) replaceWatchdog(g child.LostWatchdog) {
	if j.c.Late() > 0 {
		j.phase = killed
		return
	}
	j.watchdogs++
	err := error(nil)
	if j.watchdogs <= 5 {
		err = j.c.ReplaceWatchdog(g)
	}
	switch {
	case err != nil || j.watchdogs == 6:
		say("%s: the watchdog of the command was ended and is not replaced; if fencelock is stopped now, the "+
			"command may outlive its lock", quote(j.f.name))
	case j.watchdogs == 1 && child.Subreaper:
		say("%s: the watchdog of the command was killed; another one took its place, which reaches only the process "+
			"group of the command if fencelock is stopped or killed", quote(j.f.name))
	}
}

// endsAll reports whether all that the command has started has to end with it: it was ended, or died of a
// signal. What a command that ended by itself left in other sessions is a daemon, which lives on.
func (j *job) endsAll() bool {
	return j.phase != running || j.status != nil && j.status.Signal != 0
}

// settling is how long what left the session of the command may take to end with it.
const settling = 250 * time.Millisecond

// over reports whether the command has ended, and what has to end with it: its group and its
// background jobs at least. It says once what it waits for, or leaves.
func (j *job) over() bool {
	if j.status == nil || j.c.Empty() {
		return j.status != nil
	}
	j.c.Regain()
	jobs, daemons := j.c.Left()
	if !j.endsAll() && !j.c.Running() && len(jobs) == 0 {
		return j.leave(daemons)
	}
	if time.Since(j.leftover) <= time.Second || j.announced {
		return false
	}
	j.announced = true
	what := "other processes of its group run on"
	if !j.c.Running() {
		what = "processes that it has started run on: " + strings.Join(append(jobs, daemons...), ", ")
	}
	then := "the name stays locked until they end"
	if j.phase != running || j.lease.Err() != nil {
		then = "the lock does not wait for them"
	}
	say("%s: the command has ended, but %s; %s", quote(j.f.name), what, then)
	return false
}

// leave says which daemons the command leaves.
func (j *job) leave(daemons []string) bool {
	if len(daemons) > 0 {
		if time.Since(j.leftover) < settling {
			return false
		}
		say("%s: the command has ended and left %s; what it left runs on without the lock", quote(j.f.name),
			strings.Join(daemons, ", "))
	}
	return true
}

// outcome is how a job ended, for the exit code and the report.
type outcome struct {
	status *child.Status
	why    reason
	err    error
	over   time.Duration // from the end of the lease to that of the command
}

// outcome is asked after the release, whose error counts: a lock that was lost is
// noticed by then at the latest.
func (j *job) outcome(release error) outcome {
	o := outcome{status: j.status, why: j.why, err: j.err, over: j.past}
	if late := j.c.Late(); late > 0 {
		o.over = late - j.f.margin()/2
	}
	lost := release
	if err := j.lease.Err(); err != nil && !errors.Is(err, fencelock.ErrReleased) {
		lost = err
	}
	switch {
	case errors.Is(lost, fencelock.ErrMaxHold), errors.Is(lost, fencelock.ErrStalled):
		o.why = lossOf(lost)
	case errors.Is(lost, fencelock.ErrLost):
		if o.err == nil || !errors.Is(lost, fencelock.ErrExpired) {
			o.err = lost // else it is what was seen to come
		}
		o.why = lockLost
	case o.why != "":
	case j.c.Late() > 0 && j.maxLeft() <= j.f.grace.d:
		o.why = heldToMax
	case j.c.Late() > 0:
		o.why, o.err = lockLost, errors.New("fencelock was stopped for too long, and its watchdog ended the command "+
			"in time")
	case o.status.Signal != 0:
		o.why = bySignal
	default:
		o.why = byItself
	}
	return o
}

// exit is the exit code of o, and the line that goes with a code of our own.
func (o outcome) exit(f *holdFlags, token string) error {
	how := "the command ended with " + statusText(*o.status)
	switch o.why {
	case lockLost:
		if o.over > 0 {
			how += ", " + span(o.over) + " after the lease: another holder may have begun before"
		}
		return fail(exitLost, "%s (token %s) was lost while the command ran: %s; %s",
			quote(f.name), token, lossText(o.err), how)
	case stalled:
		return fail(exitLost, "%s (token %s) was given up: the command made no progress by --progress %s for --stall "+
			"%v; %s", quote(f.name), token, quote(f.progress.text), f.stall.d, how)
	case heldToMax:
		return fail(exitMaxHold, "%s (token %s) was held for --max-hold %v; %s", quote(f.name), token, f.maxHold.d, how)
	}
	code := o.status.ExitCode()
	switch {
	case code == 0:
		return nil
	case o.status.Name == "SIGINT":
		return interrupted{silently(code)}
	}
	return silently(code)
}

func statusText(s child.Status) string {
	if s.Signal != 0 {
		return s.Name
	}
	return fmt.Sprintf("exit code %d", s.Code)
}
