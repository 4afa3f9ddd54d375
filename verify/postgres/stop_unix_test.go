//go:build unix

package postgres_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

func TestStoppedHolderLearnsThatItIsGone(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, w way) {
		p := w.start(t, order{Do: "renew", Key: "k", TTL: time.Second})
		old, err := strconv.ParseInt(p.hears("held"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		b := w.backend(t)
		next := wait(t, b, claim("k"))
		p.signal(syscall.SIGSTOP)
		next = granted(t, b, next)
		if next.Token <= old {
			t.Errorf("the successor of a stopped holder has token %d; want one above %d", next.Token, old)
		}
		p.signal(syscall.SIGCONT)
		if answer := p.hears("renew"); !strings.HasPrefix(answer, "true") {
			t.Errorf("Renew after the lease answered %s; want ErrGone", answer)
		}
		if answer := p.hears("leave"); !strings.HasPrefix(answer, "true") {
			t.Errorf("Leave after the lease answered %s; want ErrGone", answer)
		}
		p.succeeds()
		if err := b.Renew(soon(t), []driver.Ticket{next})[0]; err != nil {
			t.Errorf("the successor lost its lock to the one that came back: %v", err)
		}
		leave(t, b, next)
		empty(t, b)
	})
}
