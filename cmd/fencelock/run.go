package main

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/child"
)

const runHelp = `run holds NAME while COMMAND runs, and exits with its code:

  fencelock run nightly -- ./report.sh
  fencelock run -n nightly -- ./report.sh       # or not at all
  fencelock run -w 60 --ttl 10s deploy -- make deploy
  fencelock run --size 5 downloads -- curl -O https://…

A script runs itself under the lock with this line at its top:

  [ "$FENCELOCK_NAME" = nightly ] || exec fencelock run nightly -- "$0" "$@"

There is no shell in between. The command inherits stdin, stdout and stderr. It leads a
process group of its own and gets every signal that fencelock gets. Job control of a
terminal works as without fencelock. The environment of the command has FENCELOCK_NAME,
FENCELOCK_TOKEN, FENCELOCK_OWNER and FENCELOCK_HELD, which is a JSON array of the names
that are held around it. The command gets no passwords. If one was cut out of
FENCELOCK_URL, FENCELOCK_WITHHELD is set, and a fencelock inside ends with 78 until it
gets the URL or the password again. To lock a name again inside is an error.

The command is dead before its lock ends. If the lock cannot be renewed, the process
group gets TERM --grace before the lock ends, and KILL before it ends. --max-hold ends
the same way. With --progress and --stall, a command that shows no progress for that long
is not renewed any more, and is ended like one that lost its lock, within --ttl:

  fencelock run --progress file:build.log --stall 5m build -- make
  fencelock run --progress fd:3 --stall 1m sync -- ./sync.sh    # echo . >&3 after each step
  fencelock run --progress stdout --stall 5m report -- ./report.sh

fd:N gives the command a pipe as descriptor N, 3 to 9. file:PATH looks at the time of the
last change of a file. A new file of that name is progress, and so are changes of a file that
was moved or deleted meanwhile, as logrotate does. stdout is a pipe then, also on a terminal,
and is passed on. While its reader pauses, the command is not taken to hang.

When fencelock break --notice 5m tells of the end of the lock, the command gets TERM, or HUP
with --on-revoke HUP, so that it can finish a step and end within that time. If it has not, it
is ended as by the loss of the lock, before the notice is over. With --on-loss ignore it gets
nothing without --on-revoke.

The lock is released when no process of the group is left, and no background job. A command
that died of a signal is waited for with all that it has started, also in other sessions. A
daemon that a command left in another session, as setsid, tmux or a double fork do, lives on
without the lock when the command has ended by itself: fencelock names its process on stderr.
Work that the command hands to another service (docker run -d, systemd-run, at) is not under
the lock.

KILL reaches every process that the command has started, in whatever session: su, runuser,
script and setsid hide nothing. If fencelock is killed (-9) or stopped for too long, a watchdog
process kills them in time, and the lock ends by its --ttl. Continued, fencelock exits with 79.
A job stopped with Ctrl-Z keeps its lock until its --ttl is over, and is killed then. A command
that hangs, or is stopped by itself, keeps its lock: --progress with --stall ends that. That
is so on Linux. On macOS and other Unix systems KILL reaches the process group only, and
nothing else is waited for or named.

Out of reach are: processes that run as a user whom fencelock may not signal, as under sudo
(fencelock says at once which), and a machine that pauses as a whole. If both fencelock and
its watchdog are stopped or killed, nothing kills the command. If the watchdog alone is
killed, its successor reaches only the process group. The token protects in these cases:
what the command writes to must refuse a smaller token than it has seen.

Bare numbers are seconds; 1m30s and the like work too.

Exit codes: the command's own; 128+N if it died by signal N, or if signal N ended the
waiting; 64 usage; 69 the store does not answer or refuses for now; 75 (or -E) not
acquired; 78 configuration; 79 the lock was lost while the command ran, or the command
made no progress for --stall, whatever its own code and --on-loss; 124 --max-hold was
reached; 126 the command cannot be executed; 127 it was not found. A --report that cannot
be written changes none of these.` + platformHelp

func newRun(c *cli) *cobra.Command {
	f := &holdFlags{}
	cmd := &cobra.Command{
		Use:        "run NAME [flags] -- COMMAND [ARG...]",
		SuggestFor: []string{"lock", "exec", "with", "hold"},
		Short:      "Hold a lock while a command runs",
		Long:       runHelp,
		Args:       cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.parse(cmd, args)
			if err != nil {
				return err
			}
			return r.write(c.run(f, r))
		},
	}
	f.add(cmd)
	f.addKinds(cmd)
	f.addReport(cmd)
	f.addProgress(cmd)
	f.addRevoke(cmd)
	return cmd
}

func (c *cli) run(f *holdFlags, r *report) error {
	path, err := f.prepare()
	if err != nil {
		return err
	}
	h, err := c.begin(f, r)
	if err != nil {
		return err
	}
	defer h.close()
	f.sayNotify()
	l, err := h.acquire()
	if err != nil {
		return err
	}
	r.acquired(l)
	j, err := h.runUnder(l, path)
	lost, unconfirmed := h.release(l)
	if err != nil {
		return err
	}
	o := j.outcome(lost)
	r.ended(o)
	return withSecondLine(o.exit(f, r.Token), unconfirmed)
}

// prepare refuses what cannot work, before anything is waited for.
func (f *holdFlags) prepare() (path string, err error) {
	if err := checkNesting(f.name); err != nil {
		return "", err
	}
	return f.findCommand()
}

// runUnder runs the command under l and returns when its group is gone. An error
// says that it was not started.
func (h *holding) runUnder(l *fencelock.Lease, path string) (_ *job, failed error) {
	defer func() {
		if failed != nil {
			h.giveBack(l)
		}
	}()
	f := h.f
	env, err := childEnv(f.name, l.Token().String(), owner(), h.store.byFlag)
	if err != nil {
		return nil, err
	}
	j := &job{f: f, lease: l, signals: h.signals, renewed: h.renewed}
	if f.maxHold.set {
		j.maxEnd = time.Now().Add(f.maxHold.d)
	}
	command := child.Command{Path: path, Args: f.command, Env: env, Signals: h.signals}
	if j.progress, err = f.watchProgress(l, &command); err != nil {
		return nil, fail(exitNotExecutable, "%s: no pipe for --progress: %v%s", quote(f.name), err, remedy(err))
	}
	h.progress = j.progress
	err = j.run(command)
	var exec *child.ExecError
	switch {
	case errors.As(err, &exec):
		return nil, f.cannotRun(exec.Err)
	case err != nil:
		return nil, fail(exitNotExecutable, "%s: %v%s", quote(f.name), err, remedy(err))
	}
	return j, nil
}

// remedy says what to do about a limit of this process or its machine.
func remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return "; raise the limit: ulimit -n, or LimitNOFILE= of its unit"
	case errors.Is(err, syscall.EAGAIN):
		return "; raise the limit of processes: ulimit -u, TasksMax= of its unit, or the pids limit of its container"
	case errors.Is(err, fs.ErrNotExist) && strings.Contains(err.Error(), "/proc/"):
		return "; mount /proc"
	}
	return ""
}
