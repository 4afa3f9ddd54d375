package zklock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// stayingLine makes the line of key as a node that the server does not clear away: when it
// looks for empty containers is none of a test's business.
func stayingLine(t testing.TB, b *Backend, c *zk.Conn, key string) (line string) {
	t.Helper()
	if err := b.Connect(t.Context()); err != nil { // it makes the folder
		t.Fatal(err)
	}
	line = b.lineOf(key)
	steps.Must(t, steps.ErrOf(c.Create(line, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))))
	t.Cleanup(func() { _ = c.Delete(line, -1) })
	return line
}

// A free lock costs two requests, its renewal and its release one. A client that comes back to a line that it has left
// empty joins it at once, and who does not wait can tell that nobody was there since.
//
//verify:fault ZooKeeper | requests of a free lock and of its release
func TestLineThatWasLeftCostsOneRequest(t *testing.T) {
	s, p, b := quietly(t)
	a := admin(t, s)
	free := []int32{opCreateContainer, opMulti}
	for _, tt := range []struct {
		c     driver.Claim
		stays bool // the line is there before, and the server does not clear it away
		first []int32
	}{
		{steps.Claim("new"), false, free},
		{steps.NoWait(steps.Claim("new, no wait")), false, free},
		{steps.Claim("a"), true, free},
		{steps.NoWait(steps.Claim("b")), true, []int32{opCreateContainer, opChildren, opMulti}},
		{steps.Reader("c"), true, free},
	} {
		visits := 1
		if tt.stays {
			visits = 4
			stayingLine(t, b, a, tt.c.Key)
		}
		p.Forget()
		for n := range visits {
			k := steps.Hold(t, b, steps.Another(tt.c))
			if n == 0 {
				sent(t, p, "the first Enter on "+tt.c.Key, tt.first...)
			} else {
				sent(t, p, "Enter of a line that was left", opMulti)
			}
			if !tt.stays {
				steps.Must(t, steps.Renew(t, b, k))
				sent(t, p, "Renew", opMulti)
			}
			steps.Leave(t, b, k)
			sent(t, p, "Leave", opMulti)
		}
	}
}

// A line that is gone is made again, by those who wait and by those who do not.
func TestLineThatWasLeftMayBeGone(t *testing.T) {
	s, b := oneSession(t)
	a := admin(t, s)
	line := b.lineOf("k")
	for n, c := range []driver.Claim{steps.Claim("k"), steps.NoWait(steps.Claim("k")), steps.Claim("k")} {
		c.ID = fmt.Sprint("visit", n)
		steps.Leave(t, b, steps.Hold(t, b, c))
		if err := a.Delete(line, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Fatal(err)
		}
	}
	// Another version of it, as old as the one that was left.
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("k")))
	known := b.containers.byKey["k"]
	other := connect(t, long, s)
	for {
		k := steps.Hold(t, other, steps.Claim("k"))
		if _, stat, err := a.Get(line); err != nil {
			t.Fatal(err)
		} else if stat.Version >= known.version {
			b.containers.mu.Lock()
			b.containers.byKey["k"] = container{time.Now(), stat.Version}
			b.containers.mu.Unlock()
			var busy *driver.BusyError
			if _, err := b.Enter(t.Context(), steps.NoWait(steps.Claim("k"))); !errors.As(err, &busy) {
				t.Errorf("a claim that does not wait, on a line whose version is as it was: %v; want that it is busy", err)
			}
			steps.Leave(t, other, k)
			break
		}
		steps.Leave(t, other, k)
	}
	empty(t, s)
}

// Where many lines are in use their containers go with their last claims.
func TestFewEmptyLinesAreLeft(t *testing.T) {
	s, b := oneSession(t)
	a := admin(t, s)
	b.containers.mu.Lock()
	b.containers.byKey = make(map[string]container)
	for n := range maxContainers {
		b.containers.byKey[fmt.Sprint("full", n)] = container{seen: time.Now()}
	}
	b.containers.mu.Unlock()
	line := stayingLine(t, b, a, "k")
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("k")))
	if there, _, err := a.Exists(line); there || err != nil {
		t.Errorf("the line is left behind: %v, error %v", there, err)
	}
	if n := len(b.containers.byKey); n > maxContainers {
		t.Errorf("%d lines are remembered; want %d at most", n, maxContainers)
	}
	// Those that nobody has used for long make room.
	b.containers.mu.Lock()
	for key := range b.containers.byKey {
		b.containers.byKey[key] = container{seen: time.Now().Add(-2 * containerAge)}
	}
	b.containers.mu.Unlock()
	line = stayingLine(t, b, a, "l")
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("l")))
	if there, _, err := a.Exists(line); !there || err != nil {
		t.Errorf("the line is not left to whoever comes back: %v, error %v", there, err)
	}
}
