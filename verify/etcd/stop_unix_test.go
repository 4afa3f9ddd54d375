//go:build unix

package etcd_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestStoppedHolderLearnsThatItIsGone(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	p := x.start(order{Do: "renew", Key: "k", TTL: lease})
	old, err := strconv.ParseInt(p.hears("held"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	b := x.backend()
	w := wait(t, b, claim("k"))
	p.signal(syscall.SIGSTOP)
	w = granted(t, b, w)
	if w.Token <= old {
		t.Errorf("the successor of a stopped holder has token %d; want one above %d", w.Token, old)
	}
	p.signal(syscall.SIGCONT)
	if answer := p.hears("renew"); !strings.HasPrefix(answer, "true") {
		t.Errorf("Renew after the lease answered %s; want ErrGone", answer)
	}
	if answer := p.hears("leave"); !strings.HasPrefix(answer, "true") {
		t.Errorf("Leave after the lease answered %s; want ErrGone", answer)
	}
	p.succeeds()
	if err := renew(t, b, w); err != nil {
		t.Errorf("the successor lost its lock to the one that came back: %v", err)
	}
	leave(t, b, w)
}
