package child

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Subreaper says whether a kill reaches every descendant, in whatever group and session.
const Subreaper = true

// Child is a command that runs in a job object. The job ends with this process:
// the kernel closes its last handle then, and ends all that is in it.
type Child struct {
	Exited       <-chan Status
	Stopped      <-chan os.Signal
	Changed      <-chan struct{}
	WatchdogLost <-chan LostWatchdog

	pid  int
	job  windows.Handle
	gone bool
}

// LostWatchdog does not occur here: there is no watchdog.
type LostWatchdog struct{}

var resumeProcess = windows.NewLazySystemDLL("ntdll.dll").NewProc("NtResumeProcess")

// Main plays hidden roles elsewhere. There are none here.
func Main() (code int, mine bool) { return 0, false }

// Adopt does nothing: nobody inherits orphans here.
func Adopt() {}

// Start runs c. It starts suspended and runs on inside the job, so nothing that it
// starts is outside.
func Start(c Command) (*Child, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot make a job object: %w", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		windows.CloseHandle(job)
		return nil, fmt.Errorf("cannot set up the job object: %w", err)
	}
	stdout := os.Stdout
	if c.Stdout != nil {
		stdout = c.Stdout
	}
	pid, handle, err := syscall.StartProcess(c.Path, c.Args, &syscall.ProcAttr{
		Env:   c.Env,
		Files: []uintptr{os.Stdin.Fd(), stdout.Fd(), os.Stderr.Fd()},
		Sys:   &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED},
	})
	if err != nil {
		windows.CloseHandle(job)
		return nil, &ExecError{Path: c.Path, Err: err}
	}
	process := windows.Handle(handle)
	if err := windows.AssignProcessToJobObject(job, process); err != nil {
		_ = windows.TerminateProcess(process, 1)
		windows.CloseHandle(process)
		windows.CloseHandle(job)
		return nil, fmt.Errorf("cannot put the command into the job object: %w", err)
	}
	if status, _, _ := resumeProcess.Call(uintptr(process)); status != 0 {
		windows.CloseHandle(job) // ends it
		windows.CloseHandle(process)
		return nil, errors.New("cannot let the command run")
	}
	exited := make(chan Status, 1)
	go func() {
		defer windows.CloseHandle(process)
		_, _ = windows.WaitForSingleObject(process, windows.INFINITE)
		var code uint32
		_ = windows.GetExitCodeProcess(process, &code)
		exited <- Status{Code: int(int32(code))}
	}()
	return &Child{Exited: exited, pid: pid, job: job}, nil
}

// Extend, Late, ReplaceWatchdog, Stop and Continue are about watchdogs and terminals that do not
// exist here.
func (k *Child) Extend()                            {}
func (k *Child) Late() time.Duration                { return 0 }
func (k *Child) ReplaceWatchdog(LostWatchdog) error { return nil }
func (k *Child) Stop(os.Signal) bool                { return false }
func (k *Child) Continue()                          {}

// Signal knows one signal only: every one that asks to end becomes CTRL_BREAK.
func (k *Child) Signal(os.Signal) { k.Terminate() }

// SignalOthers does nothing: Signal reaches all.
func (k *Child) SignalOthers(os.Signal, bool) {}

// Left is empty, too.
func (k *Child) Left() (jobs, daemons []string) { return nil, nil }

// Regain does nothing: the command shares the console.
func (k *Child) Regain() {}

// Untouchable is empty: nothing leaves the job.
func (k *Child) Untouchable() []string { return nil }

// Terminate asks the command to end, by CTRL_BREAK.
func (k *Child) Terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(k.pid))
}

// Kill ends every process of the job.
func (k *Child) Kill() { _ = windows.TerminateJobObject(k.job, 137) }

// Running reports whether any process of the job lives.
func (k *Child) Running() bool {
	// JOBOBJECT_BASIC_ACCOUNTING_INFORMATION
	var info struct {
		userTime, kernelTime, periodUser, periodKernel int64
		faults, total, active, terminated              uint32
	}
	const basicAccounting = 1
	err := windows.QueryInformationJobObject(k.job, basicAccounting,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	if err == nil && info.active == 0 {
		k.gone = true
	}
	return !k.gone
}

// Empty is the contrary of Running.
func (k *Child) Empty() bool { return !k.Running() }

// Close ends what is left.
func (k *Child) Close() { windows.CloseHandle(k.job) }

// DieInterrupted does nothing: a process does not end by signals here.
func DieInterrupted() {}

// Forwarded lists the signals to catch and to hand on.
func Forwarded() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

// Ends reports whether s ends a process that does not expect it.
func Ends(os.Signal) bool { return true }

// Continues reports whether s continues a stopped process. No signal does here.
func Continues(os.Signal) bool { return false }

// SignalNamed returns the signal with this name, or nil. There is one only, see Signal.
func SignalNamed(name string) os.Signal {
	if strings.TrimPrefix(strings.ToUpper(name), "SIG") == "TERM" {
		return syscall.SIGTERM
	}
	return nil
}

// SignalNumber returns the number and the name of s.
func SignalNumber(s os.Signal) (int, string) {
	if s == os.Interrupt {
		return 2, "SIGINT"
	}
	return 15, "SIGTERM"
}
