package redislock

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// These are laws of package driver once more, on paths of the scripts that the
// laws' own tests pass by: with leases of a minute, and in both forms of a line.

func TestClaimThatLingersHasLeft(t *testing.T) {
	_, b, _ := served(t)
	ctx := t.Context()
	for _, contended := range []bool{false, true} {
		key := map[bool]string{false: "alone", true: "contended"}[contended]
		c := mutex(key)
		k := hold(t, b, c)
		if contended {
			wait_(t, b, mutex(key))
		}
		must(t, b.Leave(ctx, k, driver.Exit{Linger: time.Minute}))
		wantGone(t, key+": a second Leave", b.Leave(ctx, k, driver.Exit{}))
		wantGone(t, key+": Renew", renewOne(b, k))
		wantGone(t, key+": Await", errOf(b.Await(ctx, k)))
		wantGone(t, key+": a repeated Enter", errOf(b.Enter(ctx, c)))
		if _, err := b.Enter(ctx, noWait(mutex(key))); err == nil || driver.Gone(err) {
			t.Errorf("%s: another claim's Enter answered %v", key, err)
		}
		l := line(t, b, key)
		if len(l.Claims) == 0 || !l.Claims[0].Lingering || !l.Claims[0].Granted || l.Claims[0].ID != driverutil.ShortID(c.ID) {
			t.Errorf("%s: the line is %+v", key, l)
		}
		if err := b.Break(ctx, key, k.Token, "enough", 0); err != nil {
			t.Errorf("%s: Break: %v", key, err)
		}
	}
}

// A waiting claim that leaves with a linger stays in line, and so keeps out
// those behind it.
func TestWaiterThatLingersKeepsItsPlace(t *testing.T) {
	_, b, _ := served(t)
	reader := func() driver.Claim {
		c := mutex("key")
		c.Weight = 1
		return c
	}
	hold(t, b, reader())
	writer := wait_(t, b, mutex("key"))
	behind := wait_(t, b, reader())
	must(t, b.Leave(t.Context(), writer, driver.Exit{Linger: time.Minute}))
	if now, err := b.read(t.Context(), behind); err != nil || now.Granted {
		t.Errorf("a reader behind it: granted %v, %v", now.Granted, err)
	}
}

// Nobody has looked at the line since the holder's lease ended, so it is still in it. Its
// renewal, which comes late, must not bring it back before the one who waits.
func TestRenewalInALongLineBringsNothingBack(t *testing.T) {
	t.Parallel()
	_, b, _ := served(t)
	c := mutex("key")
	c.TTL = time.Second
	k := hold(t, b, c)
	end := time.After(c.TTL + 20*time.Millisecond)
	w := wait_(t, b, mutex("key"))
	<-end
	k.TTL = time.Minute
	wantGone(t, "the renewal of a claim whose lease had ended", renewOne(b, k))
	granted(t, b, w)
	leave(t, b, w)
}

// The keys of a line live as long as its longest lease.
func TestRenewalWithALongerLeaseKeepsTheLineAlive(t *testing.T) {
	_, b, rdb := served(t)
	k := hold(t, b, mutex("key"))
	wait_(t, b, mutex("key"))
	k.TTL = 10 * 24 * time.Hour
	must(t, renewOne(b, k))
	for _, suffix := range []string{"", "c", "z"} {
		if left := rdb.PTTL(t.Context(), b.recordName("key")+suffix).Val(); left < k.TTL {
			t.Errorf("a key of the line expires in %v, its lease lasts %v", left, k.TTL)
		}
	}
}

func TestPushBringsTheMark(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s)
	holder, waiter := connect(t, s, nil), closing(t, New(p.client(), nil))
	mark := driver.Mark("a:1 \x00mark")
	held := hold(t, holder, slots("key", 3, 3))
	k := wait_(t, waiter, slots("key", 3, 3))
	subscribed(t, waiter)
	must(t, errOf(waiter.read(t.Context(), k)))
	p.Forget()
	got := make(chan driver.Ticket)
	go func() {
		now, err := waiter.Await(context.Background(), k)
		if err != nil {
			t.Errorf("Await: %v", err)
		}
		got <- now
	}()
	parked(t, waiter, k)
	must(t, holder.Leave(t.Context(), held, driver.Exit{Mark: mark}))
	if now := <-got; !now.Granted || now.Mark != mark {
		t.Errorf("Await answered %+v; want the mark %q", now, mark)
	}
	if all, _ := p.names(); slices.Contains(all, "evalsha") {
		t.Error("the grant came by a request, not by push")
	}
	must(t, waiter.Leave(t.Context(), k, driver.Exit{Mark: driver.Mark(strings.Repeat("m", driver.MaxMark))}))
	if k = enter(t, holder, slots("other", 1, 1)); k.Mark != "" {
		t.Errorf("the mark reached another key: %q", k.Mark)
	}
	k = hold(t, holder, slots("key", 1, 3))
	if len(k.Mark) != driver.MaxMark {
		t.Errorf("the next holder was told a mark of %d bytes", len(k.Mark))
	}
}

// A grant that was pushed before anybody waited for it is not news: the claim may
// have been broken since.
func TestGrantFromBeforeTheCallIsReadAgain(t *testing.T) {
	_, b, _ := served(t)
	hold(t, b, mutex("key"))
	k := wait_(t, b, mutex("key"))
	subscribed(t, b)
	must(t, errOf(b.read(t.Context(), k)))
	b.subscriber.handle("g0:" + prefixed(k.ID)) // late, from a line that was flushed since
	if now, err := b.Await(t.Context(), k); err != nil || now.Granted {
		t.Errorf("Await answered granted %v, %v", now.Granted, err)
	}
}

func TestTombstoneIsOnlyEverProlonged(t *testing.T) {
	_, b, _ := served(t)
	c := mutex("key")
	for _, ttl := range []time.Duration{time.Minute, minTTL} {
		k := driver.Ticket{Claim: c}
		k.TTL = ttl
		wantGone(t, "Leave of a claim that never came", b.Leave(t.Context(), k, driver.Exit{Tombstone: true}))
	}
	marker := mutex("other")
	marker.TTL = minTTL
	hold(t, b, marker)
	eventually(t, "the shorter tombstone is over", func() bool { return len(line(t, b, "other").Claims) == 0 })
	wantGone(t, "Enter of an ID with a tombstone of a minute", errOf(b.Enter(t.Context(), c)))
}
