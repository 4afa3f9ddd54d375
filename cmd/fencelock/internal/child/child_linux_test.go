package child

import (
	"os"
	"os/signal"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// A signal ends every poll, and one comes with the end of each child. That must not
// pass for a watchdog that does not answer.
func TestSignalsAreNoAnswerAndNoEnd(t *testing.T) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, unix.SIGWINCH)
	defer signal.Stop(heard)
	ours, theirs, err := socketpair()
	steps.Must(t, err)
	defer unix.Close(ours)
	defer unix.Close(theirs)

	thread, answered := make(chan int), make(chan bool)
	go func() {
		runtime.LockOSThread()
		thread <- unix.Gettid()
		answered <- answers(ours, now()+int64(time.Minute))
	}()
	tid := <-thread
	for range 20 {
		steps.Must(t, unix.Tgkill(os.Getpid(), tid, unix.SIGWINCH))
		<-heard
	}
	select {
	case <-answered:
		t.Fatal("nobody has answered yet")
	default:
	}
	if !writeAll(theirs, []byte{sayReady}) || !<-answered {
		t.Error("the answer was not heard")
	}
	if answers(theirs, now()+int64(20*time.Millisecond)) {
		t.Error("heard an answer that nobody gave")
	}
}
