//go:build unix

package sqlite_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

func TestStoppedHolderLearnsThatItIsGone(t *testing.T) {
	t.Parallel()
	dsn := sqllock.SQLiteDSN(newFile(t))
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
