package zklock

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/go-zookeeper/zk"
)

//verify:fault ZooKeeper | compaction while waiting | n/a: nothing is compacted

// The answer to an Enter is lost, or the Enter itself: repeated, it makes one claim.
//
//verify:fault ZooKeeper | connection lost in create, and in delete
//verify:fault The network | reset in the middle; a request is applied and its answer is lost
func TestRepeatedEnterAfterALostConnectionIsOneClaim(t *testing.T) {
	t.Parallel()
	for _, op := range []int32{opCreateContainer, opMulti} {
		t.Run(fmt.Sprint("request ", op), func(t *testing.T) {
			eachLoss(t, func(t *testing.T, key string, b *Backend, loses func(op int32)) {
				c := steps.Claim(fmt.Sprint(key, op))
				loses(op)
				steps.Unknown(t, "an Enter that was not answered", steps.ErrOf(b.Enter(within(t, 10*time.Second), c)))
				k := steps.Hold(t, b, c)
				a := admin(t, server(t))
				if n := nodes(t, a, c.Key); len(n) != 1 {
					t.Errorf("the line is %v; want the one claim", n)
				}
				steps.OK(t, renew(b, k))
				steps.Leave(t, b, k)
				if n := nodes(t, a, c.Key); len(n) != 0 {
					t.Errorf("the line is %v; want it empty", n)
				}
			})
		})
	}
}

// eachLoss plays f with each way to lose a request with its connection. loses has that happen to the first
// request with a number.
func eachLoss(t *testing.T, f func(t *testing.T, key string, b *Backend, loses func(op int32))) {
	t.Parallel()
	s := server(t)
	for name, way := range lost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, s)
			f(t, name, quiet(t, p), func(op int32) { p.Handle(once(op, way)) })
		})
	}
}

// An Enter was not applied, and its answer is lost. A node with its ID is there, of another
// session, which nobody renews: to adopt it would be to hold a lock that is about to end.
func TestNodeOfAnotherSessionIsNotAdopted(t *testing.T) {
	s, p, b := quietly(t)
	a := admin(t, s)
	c := steps.Claim("k")
	first := steps.Hold(t, b, steps.Claim(c.Key))
	of := claimRecord{Format: format, Owner: c.Owner, Span: c.Span, TTL: c.TTL.Milliseconds()}
	node, err := a.Create(b.lineOf(c.Key)+"/"+nameOf(&c), write(of), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	steps.Must(t, err)
	steps.Leave(t, b, first)
	p.Handle(once(opMulti, faultproxy.DropRequest))
	steps.Unknown(t, "an Enter that was not answered", steps.ErrOf(b.Enter(within(t, 10*time.Second), c)))
	k := steps.Enter(t, b, c)
	if k.Granted {
		t.Errorf("the node %s of another session was taken for a grant", node)
	}
	steps.Must(t, a.Delete(node, -1))
	steps.Leave(t, b, steps.Granted(t, b, k))
}

// The ensemble applies an Enter late, when its caller has given up or repeated it. Without the
// barrier it would make a claim that nobody knows of and that the session keeps alive.
//
//verify:fault ZooKeeper | connection lost in create, and in delete
func TestDelayedEnterIsKeptOut(t *testing.T) {
	t.Parallel()
	s := server(t)
	a := admin(t, s)
	for _, repeated := range []bool{false, true} {
		b := connect(t, long, s)
		c := steps.Claim("k")
		deliver := loseNextJoin(t, b)
		if _, err := b.Enter(within(t, 10*time.Second), c); err == nil {
			t.Fatal("an Enter that is still under way was answered")
		}
		k := driver.Ticket{Claim: c}
		if repeated {
			k = steps.Hold(t, b, c)
		} else if err := b.Leave(within(t, 10*time.Second), k, driver.Exit{Tombstone: true}); err != nil && !driver.Gone(err) {
			t.Fatalf("Leave: %v", err)
		}
		if err := deliver(); err == nil {
			t.Errorf("an Enter that nobody waits for was applied; repeated: %v", repeated)
		}
		if n := nodes(t, a, "k"); len(n) != 0 && !repeated || len(n) != 1 && repeated {
			t.Errorf("the line is %v; want the one claim if it was repeated: %v", n, repeated)
		}
		if !repeated {
			k = steps.Hold(t, b, steps.NoWait(steps.Claim("k")))
		}
		steps.Leave(t, b, k)
		empty(t, s)
	}
}

// Somebody enters between the look of a claim that does not wait and its joining: it
// is refused without ever having been in line.
func TestRefusalAfterARaceWritesNothing(t *testing.T) {
	s, b, other := twoSessions(t)
	first := steps.Hold(t, other, steps.Reader("k"))
	var writer driver.Ticket
	raced := false
	watchJoins(t, b, func([]any) error {
		if !raced {
			raced = true
			writer = steps.Wait(t, other, steps.Claim("k"))
		}
		return nil
	})
	var busy *driver.BusyError
	if _, err := b.Enter(t.Context(), steps.NoWait(steps.Reader("k"))); !errors.As(err, &busy) || !raced {
		t.Fatalf("the reader behind a writer was answered %v, raced %v; want a refusal", err, raced)
	}
	_, stat, err := admin(t, s).Get(b.lineOf("k"))
	if err != nil || stat.Cversion != 2 {
		t.Errorf("the line has seen %d arrivals and departures, error %v; want two arrivals", stat.Cversion, err)
	}
	steps.Leave(t, other, first)
	steps.Leave(t, other, steps.Granted(t, other, writer))
	empty(t, s)
}

// The connection breaks while a claim leaves. The core would repeat the Leave; here nobody does,
// and the node must go all the same.
//
//verify:fault ZooKeeper | connection lost in create, and in delete
//verify:fault The network | reset in the middle; a request is applied and its answer is lost
func TestLeaveIsFinishedBehind(t *testing.T) {
	eachLoss(t, func(t *testing.T, key string, b *Backend, loses func(op int32)) {
		k := steps.Hold(t, b, steps.Claim(key))
		loses(opMulti)
		if err := b.Leave(within(t, 10*time.Second), k, driver.Exit{}); err == nil {
			t.Fatal("a Leave that was not answered answered nil")
		}
		a := admin(t, server(t))
		eventually(t, "the node is gone", func() bool { return len(nodes(t, a, key)) == 0 })
		steps.Gone(t, "Renew after Leave", renew(b, k))
	})
}

// No server answers for longer than the caller waits.
//
//verify:fault ZooKeeper | connection lost in create, and in delete
func TestLeaveIsFinishedAfterAnOutage(t *testing.T) {
	s, p, b := quietly(t)
	k := steps.Hold(t, b, steps.Claim("k"))
	p.Handle(func(r *faultproxy.Request) faultproxy.Action {
		if op(r) == opMulti {
			p.Refuse()
			return faultproxy.DropRequest
		}
		return faultproxy.Pass
	})
	begun := time.Now()
	if err := b.Leave(within(t, 300*time.Millisecond), k, driver.Exit{}); err == nil {
		t.Fatal("a Leave that was not answered answered nil")
	}
	steps.TookAtMost(t, begun, 5*time.Second)
	a := admin(t, s)
	if n := nodes(t, a, "k"); len(n) != 1 {
		t.Fatalf("the line is %v before the network heals; want the claim", n)
	}
	p.Handle(nil)
	p.Resume()
	eventually(t, "the node is gone", func() bool { return len(nodes(t, a, "k")) == 0 })
}

// A mark whose Leave got no answer is written once, and the repeat says so.
func TestMarkIsWrittenOnceWhateverIsLost(t *testing.T) {
	eachLoss(t, func(t *testing.T, key string, b *Backend, loses func(op int32)) {
		k, e := steps.Hold(t, b, steps.Claim(key)), driver.Exit{Mark: "done"}
		loses(opMulti) // the one transaction writes the mark
		if err := b.Leave(within(t, 10*time.Second), k, e); err == nil {
			t.Fatal("a Leave that was not answered answered nil")
		}
		steps.Must(t, b.Leave(t.Context(), k, e))
		next := steps.Hold(t, b, steps.Claim(key))
		steps.Same(t, "the next holder finds the mark", next.Mark, "done")
		steps.Leave(t, b, next)
	})
}

// A connection that breaks is no loss: the claim is there, and is renewed again.
func TestDisconnectedIsNotGone(t *testing.T) {
	s, p, b := quietly(t)
	k := steps.Hold(t, b, steps.Claim("k"))
	w := steps.Wait(t, b, steps.Claim("k"))
	p.Refuse()
	steps.Unknown(t, "Renew without a connection", b.Renew(within(t, 300*time.Millisecond), []driver.Ticket{k})[0])
	steps.Unknown(t, "Await without a connection", steps.ErrOf(b.Await(within(t, 300*time.Millisecond), w)))
	p.Resume()
	for _, err := range b.Renew(within(t, 20*time.Second), []driver.Ticket{k, w}) {
		steps.Well(t, "Renew after the connection came back", err)
	}
	steps.Leave(t, b, k)
	steps.Leave(t, b, steps.Granted(t, b, w))
	empty(t, s)
}

// A server goes silent and its connection stays open. Another server is found while
// the lease lasts.
//
//verify:fault ZooKeeper | a server that goes silent
//verify:fault The network | half-open connections, one direction cut
func TestSilentServerIsLeftInTime(t *testing.T) {
	t.Parallel()
	s := server(t)
	p, q := newProxy(t, s), newProxy(t, s)
	b := New([]string{p.Addr(), q.Addr()}, below(t, &Options{SessionTimeout: 6 * time.Second}))
	t.Cleanup(func() { b.Close() })
	k := steps.Hold(t, b, steps.Claim("k"))
	if q.Open() > 0 {
		p, q = q, p
	}
	steps.Must(t, renew(b, k))
	sent := time.Now()
	p.Discard(faultproxy.ToServer, faultproxy.ToClient)
	eventually(t, "the claim is renewed", func() bool {
		err := b.Renew(within(t, k.TTL/3), []driver.Ticket{k})[0]
		if driver.Gone(err) {
			t.Fatalf("Renew: %v", err)
		}
		return err == nil
	})
	steps.TookAtMost(t, sent, k.TTL)
	steps.Leave(t, b, k)
	empty(t, s)
}

// A node that vanishes while its watcher is cut off is noticed.
func TestGrantDuringADisconnectionIsNotLost(t *testing.T) {
	s, p, b := quietly(t)
	holder := connect(t, long, s)
	h := steps.Hold(t, holder, steps.Claim("k"))
	w := steps.Wait(t, b, steps.Claim("k"))
	_, _ = b.Await(within(t, 300*time.Millisecond), w) // sets the watches
	p.Refuse()
	steps.Leave(t, holder, h)
	p.Resume()
	begun := time.Now()
	steps.Leave(t, b, steps.Granted(t, b, w))
	steps.TookAtMost(t, begun, 5*time.Second)
	empty(t, s)
}

// The session expires while the process runs, and the client begins another one
// without a word.
//
//verify:fault ZooKeeper | lease revoked, or session expired
func TestExpiredSessionEndsAllItsClaims(t *testing.T) {
	s, p := proxied(t)
	b := through(t, p, &Options{SessionTimeout: 2 * time.Second})
	other := connect(t, long, s)
	c := steps.Claim("k")
	k := steps.Hold(t, b, c)
	if k.TTL != 2*time.Second*2/3 || k.Left > k.TTL {
		t.Errorf("a session of 2s gives a lease of %v with %v left; want two thirds", k.TTL, k.Left)
	}
	w := steps.Wait(t, b, steps.Claim("k"))
	var sent time.Time
	eventually(t, "both claims are renewed", func() bool {
		sent = time.Now()
		return errors.Join(b.Renew(t.Context(), []driver.Ticket{k, w})...) == nil
	})
	p.Refuse()
	next := steps.Granted(t, other, steps.Wait(t, other, steps.Claim("k")))
	if took := time.Since(sent); took < k.TTL {
		t.Errorf("the next holder was granted %v after a renewal was sent that was answered; the lease is %v", took, k.TTL)
	}
	p.Resume()
	for i, err := range b.Renew(within(t, 20*time.Second), []driver.Ticket{k, w}) {
		steps.Gone(t, fmt.Sprintf("Renew of claim %d after the session expired", i), err)
	}
	steps.Gone(t, "Await after the session expired", steps.ErrOf(b.Await(t.Context(), w)))
	steps.Gone(t, "Leave after the session expired", b.Leave(t.Context(), k, driver.Exit{Mark: "late"}))
	// The same ID may come again, behind the others.
	again := steps.Wait(t, b, c)
	steps.Rises(t, next.Token, again.Token)
	steps.Leave(t, other, next)
	if again = steps.Granted(t, b, again); again.Mark != "" {
		t.Errorf("a dead claim wrote the mark %q", again.Mark)
	}
	steps.Leave(t, b, again)
	empty(t, s)
}

// Requests arrive and answers do not. Each attempt to connect starts the session's time again on
// the server, so the client must stop when the lease is over.
//
//verify:fault The network | half-open connections, one direction cut
func TestNextHolderWaitsForOneLeaseAndOneSessionWhenAnswersAreLost(t *testing.T) {
	s, p := proxied(t)
	const session = 4500 * time.Millisecond
	b := through(t, p, &Options{SessionTimeout: session})
	other := connect(t, long, s)
	k := steps.Hold(t, b, steps.Claim("k"))
	w := steps.Wait(t, other, steps.Claim("k"))
	steps.Must(t, renew(b, k))
	p.Discard(faultproxy.ToClient)
	muted := time.Now()
	w = steps.Granted(t, other, w)
	if took, most := time.Since(muted), k.TTL+session+serverAdds; took > most {
		t.Errorf("the next holder waited %v after the last answer; want at most %v", took, most)
	}
	steps.Leave(t, other, w)
}

// What zk.Conn has queued when a session ends is not sent in the next session.
//
//verify:fault ZooKeeper | lease revoked, or session expired
func TestEnterOfAnEndedSessionMakesNothingInTheNext(t *testing.T) {
	s, p := proxied(t)
	b := through(t, p, &Options{SessionTimeout: time.Second})
	old, err := b.session(t.Context())
	steps.Must(t, err)
	a := admin(t, s)
	dir := b.lineOf("k")
	steps.Must(t, steps.ErrOf(a.Create(dir, nil, 0, zk.WorldACL(zk.PermAll))))
	p.Refuse()
	eventually(t, "the server has ended the session", func() bool {
		return len(tree(t, a, prefix(t)+sessionsDir)) == 0
	})
	// Its client does not know yet, and Enters wait in its queue for a connection.
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			c := steps.Claim("k")
			own := b.claims.acquire(driverutil.Ref(c.Key, c.ID))
			for !old.isOver() {
				e := &entry{b, old, own, c}
				if k, err := e.join(anyVersion); err == nil {
					t.Errorf("an Enter of the old session answered %+v", k)
				}
			}
		})
	}
	p.Resume()
	eventually(t, "another session begins", func() bool {
		now, err := b.session(within(t, 20*time.Second))
		return err == nil && now != old
	})
	group.Wait()
	if n := nodes(t, a, "k"); len(n) != 0 {
		t.Errorf("they made %v", n)
	}
	steps.OK(t, a.Delete(dir, -1))
}

// An Enter that made the line's container and did not get into it leaves none: the server
// clears away only those that somebody was in.
//
//verify:fault ZooKeeper | nothing is left
func TestEnterThatIsGivenUpLeavesNoContainer(t *testing.T) {
	s, b := oneSession(t)
	c := steps.Claim("k")
	loseNextJoin(t, b) // and it never arrives
	steps.Unknown(t, "an Enter that got no answer", steps.ErrOf(b.Enter(t.Context(), c)))
	if err := b.Leave(t.Context(), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true}); err != nil && !driver.Gone(err) {
		t.Error(err)
	}
	empty(t, s)
}

func TestDeletedNodeIsGoneAtTheNextRenew(t *testing.T) {
	s, b := oneSession(t)
	keys := []string{"a", "b", "c", "d"}
	var ks []driver.Ticket
	for _, key := range keys {
		ks = append(ks, steps.Hold(t, b, steps.Claim(key)))
	}
	a := admin(t, s)
	for _, key := range []string{"a", "c"} {
		steps.Must(t, a.Delete(b.lineOf(key)+"/"+nodes(t, a, key)[0], -1))
	}
	for i, err := range b.Renew(t.Context(), ks) {
		if deleted := i%2 == 0; driver.Gone(err) != deleted || !deleted && err != nil {
			t.Errorf("Renew on %q: %v; deleted: %v", keys[i], err, deleted)
		}
	}
	for _, call := range []func(){
		func() { steps.OK(t, renew(b, ks[1])) },
		func() { steps.Leave(t, b, steps.Hold(t, b, steps.Claim("e"))) },
	} {
		for _, n := range tree(t, a, prefix(t)+sessionsDir) { // the barrier is a node too
			steps.Must(t, a.Delete(n, -1))
		}
		call()
	}
	steps.Leave(t, b, ks[1])
	steps.Leave(t, b, ks[3])
	empty(t, s)
}

// The session lives, because another claim is renewed. Claims whose own leases end may not
// live on with it, whichever was entered or renewed first.
func TestShortLeasesEndThoughTheSessionLives(t *testing.T) {
	s, b, other := twoSessions(t)
	steps.Must(t, other.Connect(t.Context()))
	stays := steps.Hold(t, b, steps.Claim("stays"))
	begun := time.Now()
	after := map[string]time.Duration{"second": time.Second, "first": 500 * time.Millisecond, "third": 4 * time.Second}
	held := map[string]driver.Ticket{}
	for _, key := range []string{"second", "first", "third"} {
		held[key] = steps.Hold(t, b, steps.TTL(steps.Claim(key), after[key]))
		if k := held[key]; k.TTL != after[key] || k.Left > k.TTL {
			t.Errorf("asked for %v, got %v with %v left", after[key], k.TTL, k.Left)
		}
	}
	since := map[string]time.Time{"first": begun, "second": begun}
	for _, key := range []string{"first", "second", "third"} {
		next := steps.Granted(t, other, steps.Enter(t, other, steps.Claim(key)))
		if took := time.Since(since[key]); took < after[key] || took > after[key]+5*time.Second {
			t.Errorf("the %s claim, with a lease of %v, was in line for %v", key, after[key], took)
		}
		if key == "first" {
			since["third"] = time.Now()
			steps.Must(t, renew(b, held["third"]))
		}
		steps.Gone(t, "Renew after its lease", renew(b, held[key]))
		steps.Leave(t, other, next)
	}
	steps.OK(t, renew(b, stays))
	steps.Leave(t, b, stays)
	empty(t, s)
}

func TestRenewalBeyondTheSessionIsRefused(t *testing.T) {
	t.Parallel()
	b := connect(t, &Options{SessionTimeout: 3 * time.Second}, server(t))
	k := steps.Hold(t, b, steps.Claim("k"))
	steps.Same(t, "a session of 3s gives a lease of", k.TTL, 2*time.Second)
	k.TTL = time.Minute
	if err := renew(b, k); err == nil || driver.Gone(err) {
		t.Errorf("a renewal for a minute on a session of 3s: %v; want an error that is no loss", err)
	}
}

// Claims, sessions and their time survive a restart of the server.
//
//verify:fault ZooKeeper | the store is restarted
func TestRestartOfTheServerKeepsClaims(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, testserver.Persist(true))
	b := connect(t, long, s)
	other := connect(t, long, s)
	k := steps.Hold(t, b, steps.Claim("k"))
	w := steps.Wait(t, other, steps.Claim("k"))
	steps.Must(t, s.Restart())
	steps.OK(t, renew(b, k))
	steps.Same(t, "the claim has token", steps.Hold(t, b, k.Claim).Token, k.Token)
	steps.Leave(t, b, k)
	w = steps.Granted(t, other, w)
	steps.Rises(t, k.Token, w.Token)
	steps.Leave(t, other, w)
	empty(t, s)
}

// A server that lost its data is a loss, and no invitation.
//
//verify:fault ZooKeeper | data lost
func TestDataLossEndsAllClaims(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	b := connect(t, &Options{SessionTimeout: 6 * time.Second}, s)
	for i := range 20 { // so that the client has seen more than the server will know
		steps.Leave(t, b, steps.Hold(t, b, steps.Claim(fmt.Sprint(i))))
	}
	k := steps.Hold(t, b, steps.Claim("k"))
	steps.Must(t, s.Restart())
	eventually(t, "the claim is gone", func() bool { return driver.Gone(renew(b, k)) })
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("k")))
	empty(t, s)
}

func TestBreakOfACrashedHolderLeavesNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	crashed := connect(t, &Options{SessionTimeout: 3 * time.Second}, s)
	k := steps.Hold(t, crashed, steps.Claim("k"))
	b := connect(t, long, s)
	steps.Must(t, b.Break(t.Context(), "k", k.Token, driver.Break{Reason: "it hangs"}))
	crashed.crash()
	a := admin(t, s)
	records := tree(t, a, prefix(t)+brokenDir)
	if len(records) != 1 {
		t.Fatalf("the records are %v; want one", records)
	}
	// Another process comes when nobody can ask for it any more.
	sweeper := connect(t, long, s)
	sess, err := sweeper.session(t.Context())
	steps.Must(t, err)
	sweeper.sweepBroken(sess, time.Now().UnixMilli())
	steps.Same(t, "a record was swept away while somebody may ask for it", len(tree(t, a, prefix(t)+brokenDir)), 1)
	sweeper.sweepBroken(sess, time.Now().Add(25*time.Hour).UnixMilli())
	empty(t, s)
}

//verify:fault The API, on all stores | two versions of the library on one key
func TestPermanentErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	s := server(t)
	a := admin(t, s)
	steps.Must(t, steps.ErrOf(a.Create("/closed", nil, 0, zk.DigestACL(zk.PermAll, "boss", "secret"))))
	for _, p := range []string{"/foreign", "/foreign/lines", "/foreign/lines/k", "/foreign/lines/k/stranger"} {
		steps.Must(t, steps.ErrOf(a.Create(p, nil, 0, zk.WorldACL(zk.PermAll))))
	}
	for _, c := range []struct {
		name    string
		servers []string
		o       *Options
		says    string
	}{
		{"no servers", nil, nil, "name at least one"},
		{"relative prefix", []string{s.Addr()}, &Options{Prefix: "locks"}, "must begin with /"},
		{"slash at the end", []string{s.Addr()}, &Options{Prefix: "/locks/"}, "not end with it"},
		{"dots", []string{s.Addr()}, &Options{Prefix: "/a/../b"}, "leave out the part"},
		{"reserved", []string{s.Addr()}, &Options{Prefix: "/zookeeper/x"}, "is no path"},
		{"short session", []string{s.Addr()}, &Options{SessionTimeout: time.Millisecond}, "session timeout"},
		{"no rights", []string{s.Addr()}, &Options{Prefix: "/closed/locks"},
			`the line of "k": this client may not create nodes in "/closed": give it the Digest of a user who may, ` +
				`or grant the permission c in the ACL of "/closed"`},
		{"other user", []string{s.Addr()}, &Options{Prefix: "/closed/locks", Digest: "clerk:hush"},
			`may not create nodes in "/closed": give it the Digest`},
		{"bad ACL", []string{s.Addr()}, &Options{Prefix: "/acl", ACL: zk.AuthACL(zk.PermAll)}, "refuses the ACL"},
		{"foreign nodes", []string{s.Addr()}, &Options{Prefix: "/foreign"}, "another version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := New(c.servers, c.o)
			defer b.Close()
			_, err := b.Enter(within(t, 20*time.Second), steps.TTL(steps.Claim("k"), time.Second))
			if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Enter: %v; want a permanent error that says %q", err, c.says)
			}
			if err != nil && (strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "secret")) {
				t.Errorf("the error shows a password: %v", err)
			}
		})
	}
	if names, _, err := a.Children("/foreign/lines/k"); len(names) != 1 {
		t.Errorf("beside the foreign node are claims that were told they had not joined: %v, error %v", names, err)
	}
	boss := connect(t, &Options{Prefix: "/closed/locks", Digest: "boss:secret"}, s)
	steps.Leave(t, boss, steps.Hold(t, boss, steps.TTL(steps.Claim("k"), time.Second)))
}

// A server does not say which right is missing on which node. The error does, and names
// the lock's key, or the Prefix where there is no key yet.
func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	s := server(t)
	a := admin(t, s)
	world := func(perms int32) []zk.ACL { return zk.WorldACL(perms) }
	prepared := func(name string) *Backend {
		b := connect(t, &Options{Prefix: prefix(t) + name}, s)
		steps.Leave(t, b, steps.Hold(t, b, steps.TTL(steps.Claim("k"), time.Second)))
		return b
	}
	restrict := func(node string, perms int32) {
		steps.Must(t, steps.ErrOf(a.SetACL(node, world(perms), -1)))
	}
	noCreate := prepared("/create")
	restrict(noCreate.prefix+linesDir, zk.PermAll&^zk.PermCreate)
	_, err := noCreate.Enter(t.Context(), steps.TTL(steps.Claim("orders"), time.Second))
	denied(t, err, `"orders"`, `create nodes in "`+noCreate.prefix+linesDir+`"`, "permission c")

	noDelete := prepared("/delete")
	k := steps.Hold(t, noDelete, steps.TTL(steps.Claim("k"), time.Second))
	restrict(noDelete.lineOf("k"), zk.PermAll&^zk.PermDelete)
	err = noDelete.Leave(t.Context(), k, driver.Exit{})
	denied(t, err, `"k"`, `delete nodes in "`+noDelete.lineOf("k")+`"`, "permission d")
	restrict(noDelete.lineOf("k"), zk.PermAll)

	// These lines are no containers: the server would remove them, with their rights.
	line := func(b *Backend, key string, perms int32) {
		steps.Must(t, steps.ErrOf(a.Create(b.lineOf(key), nil, 0, world(perms))))
	}
	noRead := prepared("/read")
	line(noRead, "r", zk.PermAll&^zk.PermRead)
	_, err = noRead.Line(t.Context(), "r")
	denied(t, err, `"r"`, `read "`+noRead.lineOf("r")+`"`, "permission r")

	noWrite := prepared("/write")
	line(noWrite, "w", zk.PermAll&^zk.PermWrite)
	_, err = noWrite.Enter(t.Context(), steps.TTL(steps.Claim("w"), time.Second))
	denied(t, err, `"w"`, `write to "`+noWrite.lineOf("w")+`"`, "permission w")

	steps.Must(t, steps.ErrOf(a.Create("/shut", nil, 0, world(zk.PermRead))))
	err = connect(t, &Options{Prefix: "/shut/locks"}, s).Connect(t.Context())
	denied(t, err, `"/shut/locks"`, `create nodes in "/shut"`, "permission c")
}

func denied(t testing.TB, err error, says ...string) {
	t.Helper()
	if !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("%v; want a permanent error that matches zk.ErrNoAuth", err)
		return
	}
	for _, what := range says {
		if !strings.Contains(err.Error(), what) {
			t.Errorf("%v; want it to say %s", err, what)
		}
	}
}

// Nobody is there: calls end with their context, and say why.
func TestCallsEndWithTheirContextWhenNobodyAnswers(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	paused := connect(t, long, s)
	k := steps.Hold(t, paused, steps.Claim("k"))
	steps.Must(t, s.Pause())
	fresh := connect(t, long, s)
	refused := New([]string{"127.0.0.1:1"}, long)
	t.Cleanup(func() { refused.Close() })
	for name, b := range map[string]*Backend{"paused": paused, "no hello": fresh, "refused": refused} {
		begun := time.Now()
		ctx := within(t, 200*time.Millisecond)
		_, err := b.Enter(ctx, steps.Claim("other"))
		errs := []error{err, b.Renew(ctx, []driver.Ticket{k})[0], b.Leave(ctx, k, driver.Exit{}), b.Break(ctx, "k", 1, driver.Break{})}
		for i, err := range errs {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: call %d answered %v; want that its time is over", name, i, err)
			}
		}
		steps.TookAtMost(t, begun, 3*time.Second)
	}
	steps.Must(t, s.Continue())
	// What Enter and Leave had sent is settled when the server goes on.
	steps.Gone(t, "Leave", paused.Leave(within(t, 20*time.Second), driver.Ticket{Claim: steps.Claim("other")}, driver.Exit{Tombstone: true}))
}

// After a broken connection the client says what it has seen, so a server that has not heard of
// the last write may not answer that the claim is not there.
func TestClientSaysWhatItHasSeen(t *testing.T) {
	_, p, b := quietly(t)
	k := steps.Hold(t, b, steps.Claim("k"))
	p.Forget()
	p.Cut()
	if err := renew(b, k); err != nil {
		eventually(t, "the claim is renewed", func() bool { return renew(b, k) == nil })
	}
	var seen int64
	for _, r := range p.Requests() {
		if r.First {
			seen = int64(binary.BigEndian.Uint64(r.Data[8:]))
		}
	}
	if made := k.Token >> spanBits; seen < made {
		t.Errorf("the client says that it has seen transaction %#x; its claim was made by %#x", seen, made)
	}
	steps.Leave(t, b, k)
}

// Nothing is asked on a new connection before it has been said who asks.
func TestNothingIsAskedByNobody(t *testing.T) {
	_, p := proxied(t)
	b := through(t, p, &Options{SessionTimeout: 9 * time.Minute, Digest: "clerk:hush"})
	k := steps.Hold(t, b, steps.Claim("k"))
	for range 20 {
		p.Forget()
		p.Cut()
		for {
			err := b.Renew(within(t, 20*time.Second), []driver.Ticket{k})[0]
			if err == nil {
				break
			}
			if driver.Gone(err) || errors.Is(err, driver.ErrPermanent) {
				t.Fatalf("Renew after the connection broke: %v", err)
			}
		}
		// The connection before may have sent something until it was cut.
		rs := p.Requests()
		first := slices.IndexFunc(rs, func(r faultproxy.Request) bool { return r.First })
		if first < 0 || first+1 == len(rs) || op(&rs[first+1]) != opSetAuth {
			t.Fatalf("the requests are %v, place %d begins a new connection; want to be introduced by %d", requests(p), first, opSetAuth)
		}
	}
	steps.Leave(t, b, k)
}

// A server says that the session has expired. Nothing is asked on that connection.
func TestNothingIsAskedWithoutASession(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	steps.Must(t, err)
	defer server.Close()
	b := New([]string{server.Addr().String()}, below(t, &Options{SessionTimeout: time.Second}))
	defer b.Close()
	entered := make(chan error, 1)
	go func() {
		_, err := b.Enter(within(t, 5*time.Second), steps.TTL(steps.Claim("k"), 100*time.Millisecond))
		entered <- err
	}()
	for range 3 {
		far, err := server.Accept()
		steps.Must(t, err)
		defer far.Close()
		in := bufio.NewReader(far)
		if _, _, err := faultproxy.ZooKeeper.Request(in, true); err != nil { // the handshake
			t.Fatal(err)
		}
		expired := make([]byte, 40)
		expired[3] = byte(len(expired) - 4)
		steps.Must(t, steps.ErrOf(far.Write(expired)))
		if b, _, err := faultproxy.ZooKeeper.Request(in, false); err == nil {
			t.Errorf("the request %v was sent without a session", b)
		}
	}
	steps.OK(t, b.Close())
	steps.Is(t, "Enter without a session", <-entered, driver.ErrClosed)
}

// What a server sends that is not ZooKeeper's protocol ends the connection, and nothing
// else: zk.Conn would panic on a short packet.
func TestBadPacketsEndTheConnection(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string][]byte{
		"short":    {0, 0, 0, 3, 1, 2, 3},
		"empty":    {0, 0, 0, 0},
		"negative": {0xff, 0xff, 0xff, 0xff},
		"huge":     {0x7f, 0xff, 0xff, 0xff, 0},
	} {
		near, far := net.Pipe()
		defer far.Close()
		s := &session{b: &Backend{timeout: time.Second, crowd: &crowd{}}, end: func() {}}
		c := newTransport(near, s)
		good := make([]byte, 40)
		good[3], good[19] = byte(len(good)-4), 7
		go func() {
			_, _ = far.Write(good)
			_, _ = far.Write(bad)
		}()
		if n, err := io.ReadFull(c, make([]byte, len(good))); n != len(good) || err != nil || s.id != 7 {
			t.Errorf("%s: the handshake is read as %d bytes, %v", name, n, err)
		}
		if n, err := c.Read(make([]byte, 4)); n != 0 || !errors.Is(err, errProtocol) {
			t.Errorf("%s: a bad packet is read as %d bytes, %v", name, n, err)
		}
	}
}

// A server that accepts and then says nothing is hung up on, whatever the session.
func TestSilenceInsteadOfASessionIsNotWaitedFor(t *testing.T) {
	s, p := proxied(t)
	b := through(t, p, long)
	k := steps.Hold(t, b, steps.Claim("k"))
	p.Discard(faultproxy.ToServer, faultproxy.ToClient)
	p.Forget()
	p.Cut()
	eventually(t, "the client connects to a server that is silent", func() bool {
		return slices.ContainsFunc(p.Requests(), func(r faultproxy.Request) bool { return r.First })
	})
	p.Handle(func(r *faultproxy.Request) faultproxy.Action {
		if r.First { // the next one is heard
			p.Resume()
		}
		return faultproxy.Pass
	})
	began := time.Now()
	steps.OK(t, b.Renew(within(t, 60*time.Second), []driver.Ticket{k})[0])
	// It rests for a second then, for there is no other server.
	steps.TookAtMost(t, began, maxPatience+6*time.Second)
	steps.Leave(t, b, k)
	empty(t, s)
}

// The server forgets its watches with the connection, so the line is read again, and watched.
func TestWatchEndsWithItsConnection(t *testing.T) {
	s, p, b := quietly(t)
	other := connect(t, long, s)
	h := steps.Hold(t, other, steps.Claim("k"))
	w := steps.Wait(t, b, steps.Claim("k"))
	steps.Must(t, steps.ErrOf(b.Await(t.Context(), w)))
	p.Forget()
	p.Cut()
	eventually(t, "the line is read and watched again", func() bool {
		now, err := b.Await(within(t, 20*time.Second), w)
		if driver.Gone(err) || now.Granted {
			t.Fatalf("Await after the connection broke: %+v, %v", now, err)
		}
		asked := requests(p)
		return slices.Contains(asked, opChildren) && slices.Contains(asked, opGetData)
	})
	p.Forget()
	steps.Leave(t, other, h)
	steps.Leave(t, b, steps.Granted(t, b, w))
	sent(t, p, "a grant and its release", opChildren, opMulti)
}
