package redislock

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
)

// These are laws of package driver once more, with leases of a minute.

func TestPushBringsTheMark(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s)
	holder, waiter := connect(t, s, nil), closing(t, New(p.client(), nil))
	mark := "a:1 \x00mark"
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
	must(t, waiter.Leave(t.Context(), k, driver.Exit{Mark: strings.Repeat("m", limit.Mark)}))
	if k = enter(t, holder, slots("other", 1, 1)); k.Mark != "" {
		t.Errorf("the mark reached another key: %q", k.Mark)
	}
	if k = hold(t, holder, slots("key", 1, 3)); len(k.Mark) != limit.Mark {
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
