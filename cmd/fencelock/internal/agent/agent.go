//go:build unix

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/child"
)

// role is the hidden first argument of the agent's process.
const role = "__agent"

// Answer is what the agent says to the process that started it.
type Answer struct {
	Held  bool   `json:"held"`
	Token string `json:"token"`
	Code  int    `json:"code"` // exit code, if not held
}

// Starter is the agent as seen by the process that started it.
type Starter struct {
	// Answer delivers one answer, and is closed when the agent is gone.
	Answer <-chan Answer
	socket *os.File
}

// Start starts the agent: this very command line once more, in a session of its own, with
// the watch and without the shell's files. shell is the process that is told when the
// lock is lost.
func Start(w *Watch, shell int) (*Starter, error) {
	exe, err := child.Self()
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(pair[0])
	unix.CloseOnExec(pair[1])
	given, err := inheritable(pair[1], int(w.anew.Fd()))
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), null.Fd(), 2}
	if w.same(2) {
		files[2] = null.Fd() // the shell's stderr is the watched file
	}
	argv := []string{
		"fencelock", role,
		strconv.Itoa(given[0]), strconv.Itoa(given[1]), strconv.FormatInt(w.offset, 10), strconv.Itoa(shell),
	}
	_, err = syscall.ForkExec(exe, append(argv, os.Args[1:]...), &syscall.ProcAttr{
		Env: os.Environ(), Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	for _, fd := range given {
		unix.Close(fd)
	}
	unix.Close(pair[1])
	if err != nil {
		return nil, err
	}
	socket := os.NewFile(uintptr(pair[0]), "agent")
	answer := make(chan Answer, 1)
	go func() {
		defer close(answer)
		for d := json.NewDecoder(socket); ; {
			var a Answer
			if d.Decode(&a) != nil {
				return
			}
			select {
			case answer <- a:
			default:
			}
		}
	}()
	return &Starter{answer, socket}, nil
}

// inheritable copies files for a process that is about to be started, to numbers
// above those that a shell hands down.
func inheritable(fds ...int) ([]int, error) {
	var given []int
	for _, fd := range fds {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 10)
		if err != nil {
			return nil, err
		}
		given = append(given, n)
	}
	return given, nil
}

// Accept leaves the lock to the agent. This process may end now.
func (s *Starter) Accept() { _, _ = s.socket.Write([]byte{1}) }

// Cancel makes the agent leave the line, and waits for that, within reason.
func (s *Starter) Cancel() {
	_ = unix.Shutdown(int(s.socket.Fd()), unix.SHUT_WR)
	late := time.After(5 * time.Second)
	for {
		select {
		case _, ok := <-s.Answer:
			if !ok {
				return
			}
		case <-late:
			return
		}
	}
}

// Agent is this process, if it is one.
type Agent struct {
	socket   *os.File
	shell    *os.Process
	pid      int
	waited   context.Context
	accepted chan struct{}
	closed   chan struct{}
}

// Main returns the Agent that this process is, or nil. It takes the hidden
// arguments off the command line. Call it before anything is opened.
func Main() *Agent {
	if len(os.Args) < 7 || os.Args[1] != role {
		return nil
	}
	var n [4]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(os.Args[2+i], 10, 64); err != nil {
			return nil
		}
	}
	socket, watched, offset, shell := int(n[0]), int(n[1]), n[2], int(n[3])
	if kind, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return nil // a person typed it
	}
	os.Args = append(os.Args[:1], os.Args[6:]...)
	child.CloseInherited(socket, watched)
	unix.CloseOnExec(socket)
	unix.CloseOnExec(watched)

	waited, giveUp := context.WithCancel(context.Background())
	a := &Agent{
		socket: os.NewFile(uintptr(socket), "starter"), pid: shell,
		waited: waited, accepted: make(chan struct{}), closed: make(chan struct{}),
	}
	// Taken now, while the starter waits and its parent most likely does: where the
	// system can, this stays that process, whoever gets its number later.
	if shell > 1 {
		a.shell, _ = os.FindProcess(shell)
	}
	go func() {
		b := make([]byte, 1)
		if n, _ := a.socket.Read(b); n == 1 {
			close(a.accepted)
			return
		}
		giveUp()
	}()
	go func() {
		// A lock that cannot be waited for is no reason to hold on for ever.
		_ = wait(watched, offset)
		close(a.closed)
	}()
	return a
}

// Waited ends when nobody waits for the lock any more.
func (a *Agent) Waited() context.Context { return a.waited }

// Closed is closed when the shell's file is closed everywhere.
func (a *Agent) Closed() <-chan struct{} { return a.closed }

// Send sends an answer, if anybody listens.
func (a *Agent) Send(what Answer) { _ = json.NewEncoder(a.socket).Encode(what) }

// Hand tells the starter that the lock is held, and reports whether it heard.
func (a *Agent) Hand(what Answer) bool {
	a.Send(what)
	select {
	case <-a.accepted:
		return true
	case <-a.waited.Done():
		return false
	}
}

// SignalShell sends TERM or KILL to the shell, and says what it did.
func (a *Agent) SignalShell(kill bool) string {
	if a.shell == nil {
		return fmt.Sprintf("process %d is not signalled", a.pid)
	}
	s, name := unix.SIGTERM, "TERM"
	if kill {
		s, name = unix.SIGKILL, "KILL"
	}
	if err := a.shell.Signal(s); err != nil {
		return fmt.Sprintf("process %d could not be sent %s: %v", a.pid, name, err)
	}
	return fmt.Sprintf("process %d was sent %s", a.pid, name)
}
