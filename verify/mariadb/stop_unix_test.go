//go:build unix

package mariadb_test

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
	dsn := newDSN(t, "")
	p := start(t, order{Do: "renew", DSN: dsn, Key: "k", TTL: time.Second})
	old, err := strconv.ParseInt(p.hears("held"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	b := backend(t, openDSN(t, dsn))
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
	if err := b.Renew(soon(t), []driver.Ticket{w})[0]; err != nil {
		t.Errorf("the successor lost its lock to the one that came back: %v", err)
	}
	leave(t, b, w)
	empty(t, b)
}

// TestStoppedAnywhereNobodyIsKept stops a busy process at random moments, also in the
// middle of its steps: no line may stay locked while it stands.
func TestStoppedAnywhereNobodyIsKept(t *testing.T) {
	t.Parallel()
	dsn := newDSN(t, "")
	p := start(t, order{Do: "storm", DSN: dsn, Key: "k", TTL: 300 * time.Millisecond})
	p.hears("works")
	b := backend(t, openDSN(t, dsn))
	var longest time.Duration
	for i := range 30 {
		timer := time.NewTimer(time.Duration(3000+i*177) * time.Microsecond)
		<-timer.C
		p.signal(syscall.SIGSTOP)
		for key := range 3 {
			began := time.Now()
			ticket, err := b.Enter(soon(t), noWait(claim("k"+strconv.Itoa(key))))
			longest = max(longest, time.Since(began))
			if err == nil {
				leave(t, b, ticket)
			}
		}
		p.signal(syscall.SIGCONT)
	}
	if longest > 5*time.Second {
		t.Errorf("a try beside a stopped process took %v", longest)
	}
	p.kill()
	for key := range 3 {
		leave(t, b, granted(t, b, enter(t, b, claim("k"+strconv.Itoa(key)))))
	}
	empty(t, b)
}
