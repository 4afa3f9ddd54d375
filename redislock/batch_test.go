package redislock

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
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
	s := newServer(t)
	b, rdb := patient(t, s.Addr(), nil), dial(t, s)
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
