package redislock

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faultproxy"
)

// together sends commands in one request, and returns what came of each as text.
func together(t *testing.T, b *Backend, cmds ...*request) (results []string) {
	t.Helper()
	b.transport.start(t.Context(), cmds...)
	for _, cmd := range cmds {
		got := b.transport.wait(t.Context(), cmd)
		results = append(results, fmt.Sprint(got.answer, " ", got.err))
	}
	return results
}

// enterAll makes the commands that enter.
func enterAll(b *Backend, claims ...driver.Claim) (cmds []*request) {
	for _, c := range claims {
		cmds = append(cmds, b.enterRequest(&c, false))
	}
	return cmds
}

// One call of a script judges each of its locks by itself: one that fails, is of another kind or is
// damaged changes nothing for the others.
func TestLocksOfOneCallAreJudgedByThemselves(t *testing.T) {
	s, b, rdb := served(t)
	held := hold(t, b, mutex("held"))
	hold(t, b, slots("kind", 1, 2))
	rdb.RPush(t.Context(), b.hashName("type"), "x")
	damaged := func(k driver.Ticket) driver.Ticket {
		must(t, rdb.HSet(t.Context(), b.hashName(k.Key), "c:"+k.ID, "xxxx").Err())
		return k
	}
	leave(t, b, hold(t, b, mutex("idle"))) // the script
	bad := driver.Ticket{Claim: mutex("type")}
	tickets := []driver.Ticket{held, bad, {Claim: mutex("free")}, hold(t, b, mutex("last")), damaged(hold(t, b, mutex("damaged")))}
	must(t, renew(t, b, tickets[3])) // the script

	claims := []driver.Claim{mutex("free"), noWait(mutex("held")), mutex("kind"), mutex("type"),
		mutex("twice"), mutex("twice"), mutex("another")}
	ofAll := func(sc *script, argv func(k driver.Ticket) []any) (cmds []*request) {
		for _, k := range tickets {
			cmds = append(cmds, b.request(sc, k.Key, argv(k)...))
		}
		return cmds
	}
	for _, tt := range []struct {
		name string
		cmds []*request
		want string
	}{
		{"enter", enterAll(b, claims...), "g|n|k2|WRONGTYPE|g|w|g"},
		{"renew", ofAll(renewScript, func(k driver.Ticket) []any {
			return []any{k.ID, k.TTL.Microseconds()}
		}), "+|WRONGTYPE|x|+|arithmetic"},
		{"leave", ofAll(leaveScript, func(k driver.Ticket) []any {
			return []any{k.ID}
		}), "+|WRONGTYPE|x|+|arithmetic"},
	} {
		ask(t, s, "CONFIG", "RESETSTAT")
		results := together(t, b, tt.cmds...)
		for i, want := range strings.Split(tt.want, "|") {
			if got := results[i]; !strings.HasPrefix(got, want) && (len(want) < 2 || !strings.Contains(got, want)) {
				t.Errorf("%s: lock %d has %q, want %s", tt.name, i, got, want)
			}
		}
		if n := calls(t, s, "evalsha", "eval"); n != 1 {
			t.Errorf("%s: %d locks took %d calls, want one", tt.name, len(tt.cmds), n)
		}
	}
	inLine(t, "after its Leave", b, "held", 0)
}

// A caller that goes while its call is under way costs the others nothing. Its own claim may
// have entered, and its Leave takes that out.
func TestCallerThatGoesLeavesTheOthersOfItsCall(t *testing.T) {
	p, b := through(t, newServer(t))
	leave(t, b, hold(t, b, mutex("warm up")))
	gone, stays := mutex("gone"), mutex("stays")
	sent := make(chan bool, 10)
	p.onScript(enterScript, func(int) faultproxy.Action {
		sent <- true
		return faultproxy.HoldAnswer
	})
	cmds := enterAll(b, gone, stays)
	b.transport.start(t.Context(), cmds...)
	<-sent
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := b.transport.wait(ended, cmds[0]); got.err == nil {
		t.Errorf("the one who went has %+v", got)
	}
	p.Handle(nil)
	p.Resume()
	if got := b.transport.wait(t.Context(), cmds[1]); got.err != nil {
		t.Errorf("the other has %+v", got)
	}
	inLine(t, "the claim of the one who went", b, "gone", 1)
	if err := b.Leave(t.Context(), driver.Ticket{Claim: gone}, driver.Exit{Tombstone: true}); err != nil || len(line(t, b, "gone").Claims) > 0 {
		t.Errorf("its Leave answered %v", err)
	}
}
