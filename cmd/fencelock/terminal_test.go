//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/terminal"
)

// shell is an interactive bash on a terminal of its own.
type shell struct {
	t   *testing.T
	pty *os.File
	out buffer
	cmd *exec.Cmd
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func newTerminal(t *testing.T, s *stage) *shell {
	t.Helper()
	s.terminal = true
	bash := &shell{t: t, cmd: exec.Command("bash", "--norc", "--noprofile", "-i")}
	bash.cmd.Dir = s.dir
	bash.cmd.Env = append(os.Environ(), envURL+"="+s.url, "TERM=dumb", "PS1=> ",
		"PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	started, err := pty.Start(bash.cmd)
	must(t, err)
	if bash.pty, err = interruptible(started); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := bash.pty.Read(b)
			_, _ = bash.out.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			ps, _ := exec.Command("ps", "-s", strconv.Itoa(bash.cmd.Process.Pid), "-o", "pid,ppid,pgid,sid,tpgid,stat,pending,caught,ignored,wchan,args").CombinedOutput()
			t.Logf("its processes:\n%s", ps)
		}
		// The terminal goes away, and with it what runs on it.
		_ = bash.pty.Close()
		_ = bash.cmd.Process.Kill()
		_ = bash.cmd.Wait()
		<-read
		if t.Failed() {
			t.Logf("the terminal shows:\n%s", bash.out.String())
		}
	})
	return bash
}

// interruptible returns f as a file whose Close ends a Read: what a test leaves on its
// terminal would keep that waiting forever.
func interruptible(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func (b *shell) types(text string) {
	b.t.Helper()
	must(b.t, steps.ErrOf(b.pty.WriteString(text)))
}

// answers types a line, and waits until the terminal shows text.
func (b *shell) answers(line, text string) {
	b.t.Helper()
	b.types(line + "\n")
	b.shows(text)
}

// stops types Ctrl-Z, and wants the job to stop.
func (b *shell) stops() {
	b.t.Helper()
	b.types(ctrlZ)
	b.shows("Stopped")
}

// interrupts types Ctrl-C, and wants what runs to end by it.
func (b *shell) interrupts() {
	b.t.Helper()
	b.types(ctrlC)
	b.answers("echo rc=$?.", "rc=130.")
}

// goesOn wants the shell to have the terminal.
func (b *shell) goesOn() {
	b.t.Helper()
	b.answers("echo $((6*7))", "42")
}

// shows waits until the terminal shows text. What is typed is shown too, so text is
// to be something else.
func (b *shell) shows(text string) {
	b.t.Helper()
	eventually(b.t, "the terminal shows "+quote(text)+" and not only\n"+b.out.String(), func() bool {
		return strings.Contains(b.out.String(), text)
	})
}

func TestInterruptFromTheTerminalEndsTheCommandOnly(t *testing.T) {
	t.Parallel()
	b := newTerminal(t, sqliteStage(t))
	b.answers("fencelock run n -- sh -c 'echo be''gun; exec sleep 1000'", "begun")
	b.interrupts()
	b.answers("fencelock run n -- sh -c 'trap \"echo trap''ped; exit 5\" INT; echo be''gun2; while :; do sleep 0.02; done'; echo rc=$?.", "begun2")
	b.types(ctrlC)
	b.shows("rc=5.")
	b.shows("trapped")
}

func TestInterruptFromTheTerminalEndsTheScriptAround(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	s.write("script", "for i in 1 2 3; do fencelock run n -- sh -c 'echo begun $0; exec sleep 1000' $i; done; echo script-went-on\n")
	for _, shell := range []string{"bash", "sh"} {
		b := newTerminal(t, s)
		b.answers(shell+" script", "begun 1")
		b.interrupts()
		if out := b.out.String(); strings.Contains(out, "begun 2") || strings.Contains(out, "went-on\r") {
			t.Errorf("%s: the script went on:\n%s", shell, out)
		}
	}
}

func TestStoppedJobContinues(t *testing.T) {
	t.Parallel()
	b := newTerminal(t, sqliteStage(t))
	b.answers("fencelock run n -- sh -c 'echo be''gun; read line; echo \"<$line>\"'; echo rc=$?.", "begun")
	b.stops()
	b.answers("jobs; echo $((6*7))", "42")
	b.types("fg\n")
	b.answers("hello", "<hello>")
	// In the background it may not read, and stops again.
	b.answers("fencelock run m -- sh -c 'echo be''gun2; read line; echo \"<$line>\"' &", "begun2")
	eventually(t, "it is stopped for want of the terminal", func() bool {
		b.types("jobs -l\n")
		return strings.Contains(b.out.String(), "Stopped (tty input)") || strings.Count(b.out.String(), "Stopped ") > 2
	})
	b.types("fg\n")
	b.answers("again", "<again>")
	b.answers("echo $((6*9))", "54")
}

func TestJobStoppedBeyondItsLeaseIsOver(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	b := newTerminal(t, s)
	// It starts no program after it has begun: dash does that by vfork, and on Linux
	// who is stopped within keeps its parent from being stopped, so that no shell ever
	// hears of it, with fencelock or without.
	b.answers("fencelock run --ttl 10 n -- sh -c 'trap \"\" TERM; echo $$ >pid; echo be''gun; exec sleep 1000'", "begun")
	pid := s.pid("pid")
	b.stops()
	b.answers("fencelock run n -- echo other''wise", "otherwise")
	eventually(t, "the stopped command is dead", func() bool { return !alive(pid) })
	b.answers("fg; echo rc=$?.", "rc=79.")
	b.shows("was lost while the command ran")
	b.goesOn()
}

// In a pipeline somebody else may need the terminal, and the command gets it when it
// asks.
func TestPipelineSharesTheTerminal(t *testing.T) {
	t.Parallel()
	b := newTerminal(t, sqliteStage(t))
	b.answers("fencelock run n -- sh -c 'echo be''gun; stty -echo; read line; stty echo; echo \"$line\"' | sed 's/.*/<&>/'", "<begun>")
	b.answers("hello", "<hello>")
	// Here it is the other one that reads.
	b.types("fencelock run n -- sh -c 'echo data; sleep 0.2' | sh -c 'read data; read line </dev/tty; echo \"<$data $line>\"'\n")
	b.answers("again", "<data again>")
	b.types("echo stdin | fencelock run n -- sh -c 'read first; read line </dev/tty; echo \"<$first $line>\"'\n")
	b.answers("third", "<stdin third>")
	b.answers("fencelock run n -- sh -c 'echo be''gun2; read line; echo \"<$line>\"' | cat", "begun2")
	b.stops()
	b.types("fg\n")
	b.answers("fourth", "<fourth>")
	b.answers("fencelock run n -- sh -c 'echo be''gun3; exec sleep 1000' | cat", "begun3")
	b.types(ctrlC)
	b.answers("echo rc=${PIPESTATUS[0]}.", "rc=130.")
}

// Ctrl-Z and the wish for the terminal may come in one moment: then who gets the
// terminal would run on, with the rest of its job stopped.
func TestStoppedJobIsGivenNoTerminal(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	b := newTerminal(t, s)
	b.answers("fencelock run n -- sh -c 'trap \"echo \\$\\$ >asked\" TSTP; echo be''gun; until [ -e stop ]; do :; done; read line; echo \"<$line>\"' | cat", "begun")
	b.types(ctrlZ)
	s.pid("asked") // the command has heard of it
	s.touch("stop")
	b.shows("Stopped")
	b.types("fg\n")
	b.answers("hello", "<hello>")
	b.goesOn()
}

// Some programs tidy up before they stop, and then stop themselves by SIGSTOP.
func TestJobStopsWithACommandThatStopsItself(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	b := newTerminal(t, s)
	b.answers("fencelock run n -- sh -c 'trap \"kill -STOP \\$\\$\" TSTP; echo be''gun; until [ -e enough ]; do :; done; echo \"<done>\"' | cat", "begun")
	b.stops()
	s.touch("enough")
	b.answers("fg", "<done>\r")
	b.goesOn()
}

func TestWaitingIsToldInOneLine(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder := s.holds(untilTold, "--note", "the report")
	silent := s.start("fencelock", "run", "-q", "n", "--", "true")
	told := s.start("fencelock", "run", "n", "--", "true")
	b := newTerminal(t, s)
	b.answers("fencelock run n -- echo my''turn", `fencelock: waiting for "n", held by `)
	b.shows(" (the report) since ")
	told.says(`waiting for "n", held by `)
	if text := told.err.String(); strings.Contains(text, "somebody else") {
		t.Errorf("the holder is not named: %s", text)
	}
	s.touch("enough")
	b.shows("myturn")
	holder.wait()
	silent.wait()
	if text := silent.err.String(); text != "" {
		t.Errorf("with -q it said %q", text)
	}
	told.wait()
	if text := told.err.String(); strings.Count(text, "\n") != 1 {
		t.Errorf("without a terminal it said %q; want one line", text)
	}
	// Ctrl-C leaves the line.
	s.start("fencelock", "run", "m", "--", "sh", "-c", "echo $$ >pid2; exec sleep 1000")
	s.pid("pid2")
	b.answers("fencelock run m -- true", `waiting for "m"`)
	b.interrupts()
	b.shows("SIGINT while waiting; left the line")
}

// On a terminal that can do it, the line of one who waits is written anew, and goes away.
func TestWaitingLineIsLive(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder := s.holds(untilTold)
	second := s.start("fencelock", "run", "n", "--", "sh", "-c", "until [ -e over ]; do sleep 0.02; done")
	eventually(t, "the second one waits", func() bool { return strings.Contains(s.must("show", "n"), "waits #1") })
	b := newTerminal(t, s)
	b.answers("stty cols 150; TERM=xterm fencelock run n -- echo my''turn; echo rc=$?.", "\r\x1b[Kfencelock: waiting for \"n\" for ")
	b.shows(", 2 ahead with the holder")
	s.touch("enough")
	b.shows("; you are next")
	s.touch("over")
	b.shows("\r\x1b[Kmyturn")
	b.shows("rc=0.") // it has closed the store
	holder.wait()
	second.wait()
}

func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	s.holds(longRun, "--note", strings.Repeat("a long note ", 10))
	b := newTerminal(t, s)
	b.types("stty cols 90; TERM=xterm fencelock ls; NO_COLOR=1 TERM=xterm fencelock ls\n")
	b.shows("\x1b[32mheld\x1b[0m")
	eventually(t, "both tables are shown", func() bool { return strings.Count(b.out.String(), "a long") >= 2 })
	for _, line := range strings.Split(strings.ReplaceAll(b.out.String(), "\x1b[32mheld\x1b[0m", "held"), "\r\n") {
		if strings.Contains(line, "a long") && (terminal.Columns(line) > 90 || !strings.HasSuffix(line, "…") || strings.Contains(line, "\x1b[3")) {
			t.Errorf("the row has %d columns: %q", terminal.Columns(line), line)
		}
	}
	if text := s.must("ls"); !strings.Contains(text, strings.Repeat("a long note ", 9)) || strings.Contains(text, "\x1b") {
		t.Errorf("what is no terminal gets\n%s", text)
	}
}

func TestBreakAsksOnATerminal(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	holder := s.holds("echo $FENCELOCK_TOKEN >token; exec sleep 1000")
	eventually(t, "the token is written", func() bool {
		text, err := os.ReadFile(s.path("token"))
		return err == nil && strings.HasSuffix(string(text), "\n")
	})
	b := newTerminal(t, s)
	b.answers("fencelock break n --token $(cat token); echo rc=$?.", `It may go on working after this. Break it? [y/N] `)
	b.answers("n", "rc=75.")
	if holder.ended() {
		t.Fatal("it was broken although the answer was no")
	}
	b.types("fencelock break n --token $(cat token); echo rc=$?.\n")
	eventually(t, "it asks again", func() bool { return strings.Count(b.out.String(), "[y/N]") == 2 })
	b.answers("y", "rc=0.")
	holder.wantExit(exitLost)
}
