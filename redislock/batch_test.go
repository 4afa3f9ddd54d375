package redislock

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/redislock/internal/transport"
)

// together sends commands in one request, and returns what came of each as text.
func together(t *testing.T, b *Backend, cmds ...*transport.Command) (results []string) {
	t.Helper()
	b.transport.Start(t.Context(), cmds...)
	for _, cmd := range cmds {
		got := b.transport.Wait(t.Context(), cmd)
		results = append(results, fmt.Sprint(got.Answer, " ", got.Err))
	}
	return results
}

// enterAll makes the commands that enter.
func enterAll(b *Backend, claims ...driver.Claim) (cmds []*transport.Command) {
	for _, c := range claims {
		cmds = append(cmds, b.enterCommand(&c, false))
	}
	return cmds
}

// One call of a script judges each of its locks by itself: one that fails, is of another kind or is
// damaged changes nothing for the others.
func TestLocksOfOneCallAreJudgedByThemselves(t *testing.T) {
	s, b, rdb := served(t)
	held := hold(t, b, mutex("held"))
	hold(t, b, slots("kind", 1, 2))
	rdb.RPush(t.Context(), b.recordName("type"), "x")
	// damage puts letters into a number of a record.
	damage := func(key string, at int) {
		rec := []byte(rdb.Get(t.Context(), b.recordName(key)).Val())
		copy(rec[at-1:], "xxxx")
		rdb.Set(t.Context(), b.recordName(key), rec, 0)
	}
	damaged := func(t driver.Ticket, at int) driver.Ticket { damage(t.Key, at); return t }
	leave(t, b, hold(t, b, mutex("idle")))
	damage("idle", 50)
	hold(t, b, mutex("expired"))
	damage("expired", 87)
	bad := driver.Ticket{Claim: mutex("type")}
	tickets := []driver.Ticket{held, bad, {Claim: mutex("free")}, hold(t, b, mutex("last")),
		damaged(hold(t, b, mutex("start")), 87), damaged(hold(t, b, mutex("lease")), 110), damaged(hold(t, b, mutex("token")), 50)}
	must(t, renewOne(b, tickets[3])) // the script

	claims := []driver.Claim{mutex("free"), noWait(mutex("held")), mutex("kind"), mutex("type"), mutex("idle"), mutex("expired"),
		mutex("twice"), mutex("twice"), mutex("another")}
	ofAll := func(sc *transport.Script, argv func(k driver.Ticket) []any) (cmds []*transport.Command) {
		for _, k := range tickets {
			cmds = append(cmds, b.command(sc, k.Key, argv(k)...))
		}
		return cmds
	}
	for _, tt := range []struct {
		name string
		cmds []*transport.Command
		want string
	}{
		{"enter", enterAll(b, claims...), "g|[n|k|WRONGTYPE|DAMAGED|DAMAGED|g|[w|g"},
		{"renew", ofAll(renewScript, func(k driver.Ticket) []any {
			return []any{prefixed(k.ID), encodeLease(k.TTL)}
		}), "+|WRONGTYPE|x|+|DAMAGED|DAMAGED|DAMAGED"},
		{"leave", ofAll(leaveScript, func(k driver.Ticket) []any {
			return []any{prefixed(k.ID), b.callName()}
		}), "+|WRONGTYPE|x|+|DAMAGED|DAMAGED|DAMAGED"},
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
	if l := line(t, b, "held"); len(l.Claims) != 0 {
		t.Errorf("after its Leave the line is %+v", l)
	}
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
	b.transport.Start(t.Context(), cmds...)
	<-sent
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := b.transport.Wait(ended, cmds[0]); got.Err == nil {
		t.Errorf("the one who went has %+v", got)
	}
	p.Handle(nil)
	p.Resume()
	if got := b.transport.Wait(t.Context(), cmds[1]); got.Err != nil {
		t.Errorf("the other has %+v", got)
	}
	if l := line(t, b, "gone"); len(l.Claims) != 1 {
		t.Errorf("the claim of the one who went was not sent: %+v", l)
	}
	if err := b.Leave(t.Context(), driver.Ticket{Claim: gone}, driver.Exit{Tombstone: true}); err != nil || len(line(t, b, "gone").Claims) > 0 {
		t.Errorf("its Leave answered %v", err)
	}
}
