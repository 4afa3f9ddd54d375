//go:build unix

package zklock

import (
	"syscall"
	"testing"
)

// A process that is stopped for longer than its session finds out with its first
// renewal, and its release does not end the next holder's claim.
func TestStoppedHolderLearnsThatItIsGone(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := start(t, order{Do: "renew", Servers: []string{s.Addr()}, Key: "k", Prefix: prefix(t), Session: workerSession})
	p.hears("entered true")
	p.hears("held")
	b := connect(t, long, s)
	w := wait(t, b, exclusive("k"))
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w = granted(t, b, w)
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.hears("renew true")
	p.hears("left false true")
	if err := renew(b, w); err != nil {
		t.Errorf("Renew of the next holder: %v", err)
	}
	leave(t, b, w)
	empty(t, s)
}
