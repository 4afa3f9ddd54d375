package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
)

// onLoss says what happens to the command when its lock is lost.
type onLoss string

const (
	lossTerm   onLoss = "term"   // TERM a grace before the end, KILL before it
	lossKill   onLoss = "kill"   // KILL before the end
	lossIgnore onLoss = "ignore" // runs on
)

func (o *onLoss) Type() string   { return "term|kill|ignore" }
func (o *onLoss) String() string { return string(*o) }
func (o *onLoss) Set(s string) error {
	switch onLoss(s) {
	case lossTerm, lossKill, lossIgnore:
		*o = onLoss(s)
		return nil
	}
	return errors.New("want term, kill or ignore")
}

// holdFlags are those of the verbs that hold a lock.
type holdFlags struct {
	name    string
	command []string

	nowait    bool
	wait      seconds
	shared    bool
	exclusive bool
	kinds     bool // the verb has flags for them
	code      int
	ttl       seconds
	maxHold   seconds
	minHold   seconds
	lockDelay seconds
	permits   int64
	size      int64
	note      string
	grace     seconds
	loss      onLoss
	report    string
	progress  progressSource
	stall     seconds
	onRevoke  signalFlag
	verbose   bool
	quiet     bool
}

// flagError says what is wrong on the command line of cmd, without the words of the parser
// of numbers.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	var bad *pflag.InvalidValueError
	var number *strconv.NumError
	if errors.As(err, &bad) && errors.As(err, &number) {
		want := "want a whole number, as in 3"
		switch {
		case errors.Is(number, strconv.ErrRange):
			want = "the number is too large"
		case bad.GetFlag().Value.Type() == "bool":
			want = "want true or false"
		}
		text = strings.TrimSuffix(text, number.Error()) + want
	}
	return usage("%s; see %s --help", text, cmd.CommandPath())
}

// urlFlag is --url. An empty one is most likely a variable that is not set, and the default
// store would exclude nobody elsewhere.
type urlFlag string

func (u *urlFlag) Type() string   { return "string" }
func (u *urlFlag) String() string { return string(*u) }

func (u *urlFlag) Set(text string) error {
	if text == "" {
		return errors.New("it is empty; leave it out to use " + envURL)
	}
	*u = urlFlag(text)
	return nil
}

// add declares the flags that all of these verbs have. They are those of flock(1)
// where it has one.
func (f *holdFlags) add(cmd *cobra.Command) {
	f.ttl.d, f.grace.d, f.loss = fencelock.DefaultTTL, 5*time.Second, lossTerm
	f.addWaiting(cmd)
	p := cmd.Flags()
	p.Var(&f.maxHold, "max-hold", "hold no longer than this (default: forever)")
	p.Var(&f.lockDelay, "lock-delay",
		"after a loss, keep the name taken this much longer; after a release it is free at once")
	p.Var(&f.minHold, "min-hold", "keep the name taken at least this long, counted from the grant")
	p.Var(&f.grace, "grace", "time between TERM and the end of the lock; at most half the --ttl, by default at most "+
		"a quarter")
	p.Var(&f.loss, "on-loss", "when the lock is lost: TERM then KILL, KILL at once, or run on")
	p.Lookup("ttl").Usage = "lease of the lock: how long a crashed holder blocks others; renewed while the command runs"
}

// addWaiting declares the flags of every verb that takes a lock.
func (f *holdFlags) addWaiting(cmd *cobra.Command) {
	p := cmd.Flags()
	p.BoolVarP(&f.nowait, "nonblock", "n", false, "do not wait; ask a store that does not respond for 2s at most")
	p.VarP(&f.wait, "wait", "w", "wait at most this long (default: forever)")
	p.IntVarP(&f.code, "conflict-exit-code", "E", exitNotAcquired, "exit code when not acquired")
	p.Var(&f.ttl, "ttl", "how long the lock lasts, from now and from each renew")
	p.StringVar(&f.note, "note", "", "free text that others see beside the owner")
	p.BoolVarP(&f.verbose, "verbose", "v", false, "tell what happens on stderr")
	p.BoolVarP(&f.quiet, "quiet", "q", false, "say nothing if the lock is not acquired; the exit code says it")
}

// addKinds declares the flags that say how a name is held.
func (f *holdFlags) addKinds(cmd *cobra.Command) {
	f.kinds = true
	p := cmd.Flags()
	p.BoolVarP(&f.shared, "shared", "s", false, "share the name with others that share it")
	p.BoolVarP(&f.exclusive, "exclusive", "x", false, "hold the name alone (the default)")
	p.Int64Var(&f.permits, "permits", 1, "with --size: how many permits of the semaphore to take")
	p.Int64Var(&f.size, "size", 0, "the name is a semaphore with this many permits")
}

func (f *holdFlags) addReport(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.report, "report", "", "write how it ended to this file, as JSON: who exited, why, the "+
		"token")
}

// check refuses what contradicts itself, before anything is asked of a store.
func (f *holdFlags) check(cmd *cobra.Command) error {
	for _, check := range []func(set func(string) bool) error{f.checkKind, f.checkTimes, f.checkProgress, f.checkRest} {
		if err := check(cmd.Flags().Changed); err != nil {
			return err
		}
	}
	if !f.grace.set {
		f.grace.d = min(f.grace.d, f.ttl.d/4)
		if f.maxHold.set {
			f.grace.d = min(f.grace.d, f.maxHold.d/4)
		}
	}
	return nil
}

// checkKind checks how the name is held: alone, shared, or permits of a semaphore.
func (f *holdFlags) checkKind(set func(string) bool) error {
	switch {
	case f.shared && f.exclusive:
		return usage("-s and -x exclude each other; leave one out")
	case set("size") && (f.shared || f.exclusive):
		return usage("a semaphore is neither shared nor exclusive; leave out --size, or -s and -x")
	case set("permits") && !set("size"):
		return usage("--permits takes from a semaphore; add its --size")
	case set("size") && (f.size < 1 || f.size >= driver.RW):
		return usage("--size is %d; want 1 to %d", f.size, driver.RW-1)
	case set("permits") && f.permits < 1:
		return usage("--permits is %d; it must be at least 1", f.permits)
	case set("size") && f.permits > f.size:
		return usage("--permits %d is more than --size %d and would wait forever", f.permits, f.size)
	}
	return nil
}

// checkTimes checks the durations against each other.
func (f *holdFlags) checkTimes(func(string) bool) error {
	switch {
	case f.ttl.d <= 0:
		return usage("--ttl must be positive")
	case f.ttl.d < time.Millisecond:
		return usage("--ttl is %v, which is shorter than any store can do", f.ttl.d)
	case f.maxHold.set && f.maxHold.d <= 0:
		return usage("--max-hold must be positive")
	case f.maxHold.set && f.minHold.d > f.maxHold.d:
		return usage("--min-hold %v is longer than --max-hold %v", f.minHold.d, f.maxHold.d)
	case f.grace.set && f.grace.d > f.ttl.d/2:
		return usage("--grace %v is more than half of --ttl %v, so TERM could come between two renewals that are in "+
			"time; use --ttl %v or more", f.grace.d, f.ttl.d, 2*f.grace.d)
	case f.grace.set && f.maxHold.set && f.grace.d >= f.maxHold.d:
		return usage("--grace %v leaves nothing of --max-hold %v", f.grace.d, f.maxHold.d)
	}
	return nil
}

func (f *holdFlags) checkRest(func(string) bool) error {
	switch {
	case f.nowait && f.wait.set && f.wait.d > 0:
		return usage("-n does not wait and -w does; leave one out")
	case f.quiet && f.verbose:
		return usage("-q says less and -v says more; leave one out")
	case f.code < 0 || f.code > 255:
		return usage("-E %d: an exit code is 0 to 255", f.code)
	case len(f.note) > limit.Note:
		return usage("--note has %d bytes; at most %d", len(f.note), limit.Note)
	}
	return nil
}

// checkStore refuses what the store cannot do. A lease that it would stretch or cut
// is not what was asked for.
func (f *holdFlags) checkStore(s *session) error {
	if !f.ttl.set || s.info.MaxTTL == 0 || (f.ttl.d >= s.info.MinTTL && f.ttl.d <= s.info.MaxTTL) {
		return nil
	}
	return usage("--ttl is %v; %s can do %v to %v", f.ttl.d, s.store, s.info.MinTTL, s.info.MaxTTL)
}

// fit shortens the grace if the store gives shorter leases than --ttl: ZooKeeper tells its
// longest session only to one who has it. left is what is left of the new lease, two thirds of
// it at the least.
func (f *holdFlags) fit(left time.Duration) {
	if left > f.ttl.d*6/10 {
		return
	}
	if f.ttl.set {
		say("%s has a shorter lease than --ttl %v: its store can do no longer one", quote(f.name), f.ttl.d)
	}
	f.ttl.d = left
	f.grace.d = min(f.grace.d, left/4)
}

// margin is how long before the end of the lock the last member of the group is
// killed: enough for a kill to take effect on a busy machine, and not more than half
// of the grace, which would be none otherwise.
func (f *holdFlags) margin() time.Duration {
	const least = 50 * time.Millisecond
	shortest := f.ttl.d
	if f.maxHold.set {
		shortest = min(shortest, f.maxHold.d)
	}
	m := min(max(shortest/10, least), time.Second)
	if f.grace.d > 0 {
		m = min(m, max(f.grace.d/2, least))
	}
	return m
}

// notice is how long before the end of the lease the command must be told.
func (f *holdFlags) notice() time.Duration {
	if f.loss == lossKill {
		return f.margin()
	}
	return max(f.grace.d, f.margin())
}

// options are those of the call for the lock. The waiting counts from began, but the call
// keeps time to be answered in.
func (f *holdFlags) options(began time.Time) []fencelock.Option {
	o := []fencelock.Option{fencelock.TTL(f.ttl.d)}
	switch {
	case f.nowait:
		o = append(o, fencelock.Wait(0))
	case f.wait.set:
		o = append(o, fencelock.Wait(max(f.wait.d-time.Since(began), min(f.wait.d, 100*time.Millisecond))))
	}
	if f.maxHold.set {
		o = append(o, fencelock.MaxHold(f.maxHold.d))
	}
	if f.stall.set {
		o = append(o, fencelock.Progress(f.stall.d))
	}
	if f.minHold.d > 0 {
		o = append(o, fencelock.MinHold(f.minHold.d))
	}
	if f.lockDelay.d > 0 {
		o = append(o, fencelock.LockDelay(f.lockDelay.d))
	}
	if f.note != "" {
		o = append(o, fencelock.Note(f.note))
	}
	return o
}

// parse reads the command line of run and once, and finds out whether the report can be
// written.
func (f *holdFlags) parse(cmd *cobra.Command, args []string) (*report, error) {
	if err := f.split(cmd, args); err != nil {
		return nil, err
	}
	if err := f.check(cmd); err != nil {
		return nil, err
	}
	r := newReport(f)
	return r, r.check()
}

// split takes the command line apart: one name, then -- and a command.
func (f *holdFlags) split(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	form := "write fencelock " + cmd.Name() + " NAME [flags] -- COMMAND [ARG...]"
	switch {
	case dash < 0 && len(args) == 0, dash == 0:
		return usage("the name of the lock is missing; %s", form)
	case dash < 0 && len(args) == 1:
		return usage("the command is missing; %s", form)
	case dash < 0 || dash > 1:
		return usage("-- must come between the name and the command; %s", form)
	case len(args) == 1:
		return usage("the command is missing; %s", form)
	}
	f.name, f.command = args[0], args[1:]
	return checkName(f.name)
}

// findCommand looks the command up before the lock is waited for.
func (f *holdFlags) findCommand() (string, error) {
	path, err := exec.LookPath(f.command[0])
	if errors.Is(err, exec.ErrDot) {
		err = nil // a PATH with . in it is its owner's wish
	}
	if err == nil {
		return path, nil
	}
	return "", f.cannotRun(err)
}

func (f *holdFlags) cannotRun(err error) error {
	name := f.command[0]
	switch {
	case errors.Is(err, exec.ErrNotFound) && !strings.ContainsRune(name, filepath.Separator) && name != "":
		return fail(exitNotFound, "%s: command not found: there is no %s in PATH", quote(f.name), quote(name))
	case errors.Is(err, os.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		return fail(exitNotFound, "%s: command not found: %s does not exist, or names an interpreter that does not",
			quote(f.name), quote(name))
	case errors.Is(err, syscall.ENOEXEC):
		return fail(exitNotExecutable, "%s: %s is not a program; there is no shell in between, so a script must "+
			"begin with #!", quote(f.name), quote(name))
	}
	var pe *os.PathError
	var ee *exec.Error
	switch {
	case errors.As(err, &pe):
		err = pe.Err
	case errors.As(err, &ee):
		err = ee.Err
	}
	return fail(exitNotExecutable, "%s: %s cannot be executed: %v%s", quote(f.name), quote(name), err, remedy(err))
}
