package zklock

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
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
			eachLoss(t, func(t *testing.T, key string, p *faultproxy.Proxy, b *Backend, way faultproxy.Action) {
				c := steps.Claim(fmt.Sprint(key, op))
				p.Handle(once(op, way))
				steps.Unknown(t, "an Enter that was not answered", steps.ErrOf(b.Enter(steps.Soon(t), c)))
				k := steps.Hold(t, b, c)
				a := admin(t, server(t))
				steps.Same(t, "claims in line", len(nodes(t, a, c.Key)), 1)
				steps.OK(t, steps.Renew(t, b, k))
				steps.Leave(t, b, k)
				steps.Same(t, "claims in line after Leave", len(nodes(t, a, c.Key)), 0)
			})
		})
	}
}

// eachLoss plays f with each way to lose a request with its connection.
func eachLoss(
	t *testing.T, f func(t *testing.T, key string, p *faultproxy.Proxy, b *Backend, way faultproxy.Action),
) {
	t.Parallel()
	s := server(t)
	for name, way := range map[string]faultproxy.Action{
		"applied": faultproxy.DropAnswer, "not applied": faultproxy.DropRequest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, s)
			f(t, name, p, quiet(t, p), way)
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
	steps.Unknown(t, "an Enter that was not answered", steps.ErrOf(b.Enter(steps.Soon(t), c)))
	k := steps.Enter(t, b, c)
	if k.Granted {
		t.Errorf("the node %s of another session was taken for a grant", node)
	}
	steps.Must(t, a.Delete(node, -1))
	steps.Leave(t, b, steps.Granted(t, b, k))
}

// The ensemble applies an Enter late, when its caller has given up or repeated it. Without the
// barrier it would make a claim that nobody knows of and that the session keeps alive. One that was given up has made
// the line's container, and leaves none: the server clears away only those that somebody was in.
//
//verify:fault ZooKeeper | connection lost in create, and in delete
//verify:fault ZooKeeper | nothing is left
func TestDelayedEnterIsKeptOut(t *testing.T) {
	t.Parallel()
	s := server(t)
	a := admin(t, s)
	for _, repeated := range []bool{false, true} {
		b := connect(t, long, s)
		c := steps.Claim("k")
		deliver := loseNextJoin(t, b)
		if _, err := b.Enter(steps.Soon(t), c); err == nil {
			t.Fatal("an Enter that is still under way was answered")
		}
		k := driver.Ticket{Claim: c}
		if repeated {
			k = steps.Hold(t, b, c)
		} else if err := b.Leave(steps.Soon(t), k, driver.Exit{Tombstone: true}); err != nil && !driver.Gone(err) {
			t.Fatalf("Leave: %v", err)
		} else {
			empty(t, s)
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

// The connection breaks while a claim leaves, and no server answers for longer than the caller waits. The core would
// repeat the Leave; here nobody does, and the node must go all the same.
//
//verify:fault ZooKeeper | connection lost in create, and in delete
//verify:fault The network | reset in the middle; a request is applied and its answer is lost
func TestLeaveIsFinishedBehind(t *testing.T) {
	eachLoss(t, func(t *testing.T, key string, p *faultproxy.Proxy, b *Backend, way faultproxy.Action) {
		k := steps.Hold(t, b, steps.Claim(key))
		loses := once(opMulti, way)
		patience, end := context.WithCancel(t.Context())
		p.Handle(func(r *faultproxy.Request) faultproxy.Action {
			r.AfterCut = func() {
				p.Refuse()
				end()
			}
			return loses(r)
		})
		steps.Unknown(t, "a Leave that was not answered", b.Leave(patience, k, driver.Exit{}))
		<-patience.Done()
		p.Resume()
		a := admin(t, server(t))
		eventually(t, "the node is gone", func() bool { return len(nodes(t, a, key)) == 0 })
		steps.Gone(t, "Renew after Leave", steps.Renew(t, b, k))
	})
}

// A mark whose Leave got no answer is written once, and the repeat says so.
func TestMarkIsWrittenOnceWhateverIsLost(t *testing.T) {
	eachLoss(t, func(t *testing.T, key string, p *faultproxy.Proxy, b *Backend, way faultproxy.Action) {
		k, e := steps.Hold(t, b, steps.Claim(key)), driver.Exit{Mark: "done"}
		p.Handle(once(opMulti, way)) // the one transaction writes the mark
		steps.Unknown(t, "a Leave that was not answered", b.Leave(steps.Soon(t), k, e))
		steps.Must(t, b.Leave(t.Context(), k, e))
		next := steps.Hold(t, b, steps.Claim(key))
		steps.Same(t, "the next holder finds the mark", next.Mark, "done")
		steps.Leave(t, b, next)
	})
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
	b := New([]string{p.Addr(), q.Addr()}, below(t, &Options{SessionTimeout: 40 * time.Second}))
	t.Cleanup(func() { b.Close() })
	k := steps.Hold(t, b, steps.Claim("k"))
	if q.Open() > 0 {
		p, q = q, p
	}
	steps.Must(t, steps.Renew(t, b, k))
	p.Discard(faultproxy.ToServer, faultproxy.ToClient)
	renews(t, b, k) // a quarter of the session later, of two thirds that the lease has
	steps.Leave(t, b, k)
	empty(t, s)
}

// A claim that leaves while the watch on it is cut off is noticed with the first call after that, and one that leaves
// later by a watch on the new connection, for the server forgets its watches with the old one: a line is read each ten
// seconds without them, and a call takes one.
func TestWatchEndsWithItsConnection(t *testing.T) {
	s, p, b := quietly(t)
	other := connect(t, long, s)
	for _, late := range []bool{false, true} {
		h, w := steps.Hold(t, other, steps.Claim("k")), steps.Wait(t, b, steps.Claim("k"))
		steps.Must(t, steps.ErrOf(b.Await(t.Context(), w))) // sets the watches
		p.Refuse()
		if !late {
			steps.Leave(t, other, h)
		}
		p.Resume()
		renews(t, b, w)
		calls := 0
		for ; !w.Granted && calls < 9; calls++ {
			var err error
			w, err = b.Await(steps.Soon(t), w)
			steps.Must(t, err)
			if late && calls == 1 {
				steps.Leave(t, other, h)
			}
		}
		if !w.Granted {
			t.Fatalf("it has left later: %v; the next is not granted after %d calls of Await", late, calls)
		}
		steps.Leave(t, b, w)
	}
	empty(t, s)
}

// The session expires while the process runs, and the client begins another one
// without a word.
//
//verify:fault ZooKeeper | lease revoked, or session expired
func TestExpiredSessionEndsAllItsClaims(t *testing.T) {
	s, p, b := quietly(t)
	other := connect(t, long, s)
	c := steps.Claim("k")
	k, w := steps.Hold(t, b, c), steps.Wait(t, b, steps.Claim("k"))
	expire(t, s, p)
	next := steps.Granted(t, other, steps.Enter(t, other, steps.Claim("k")))
	p.Resume()
	for i, err := range b.Renew(steps.Soon(t), []driver.Ticket{k, w}) {
		steps.Gone(t, fmt.Sprintf("Renew of claim %d after the session expired", i), err)
	}
	steps.Gone(t, "Await after the session expired", steps.ErrOf(b.Await(t.Context(), w)))
	steps.Gone(t, "Leave after the session expired", b.Leave(t.Context(), k, driver.Exit{Mark: "late"}))
	// The same ID may come again, behind the others.
	again := steps.Wait(t, b, c)
	steps.Rises(t, next.Token, again.Token)
	steps.Leave(t, other, next)
	again = steps.Granted(t, b, again)
	steps.Same(t, "the mark of a dead claim", again.Mark, "")
	steps.Leave(t, b, again)
	empty(t, s)
}

// Requests arrive and answers do not. Each attempt to connect starts the session's time again on
// the server, so the client must stop when the lease is over.
//
//verify:fault The network | half-open connections, one direction cut
func TestNextHolderWaitsForOneLeaseAndOneSessionWhenAnswersAreLost(t *testing.T) {
	s, p := proxied(t)
	b := through(t, p, &Options{SessionTimeout: 5 * time.Second})
	other := connect(t, long, s)
	steps.Hold(t, b, steps.Claim("k"))
	w := steps.Enter(t, other, steps.Claim("k"))
	p.Discard(faultproxy.ToClient)
	steps.Leave(t, other, steps.Granted(t, other, w))
}

// What zk.Conn has queued when a session ends is not sent in the next session.
//
//verify:fault ZooKeeper | lease revoked, or session expired
func TestEnterOfAnEndedSessionMakesNothingInTheNext(t *testing.T) {
	s, p, b := quietly(t)
	old, err := b.session(t.Context())
	steps.Must(t, err)
	a := admin(t, s)
	dir := b.lineOf("k")
	steps.Must(t, steps.ErrOf(a.Create(dir, nil, 0, zk.WorldACL(zk.PermAll))))
	expire(t, s, p)
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
		now, err := b.session(steps.Soon(t))
		return err == nil && now != old
	})
	group.Wait()
	steps.OK(t, a.Delete(dir, -1)) // nobody is in it
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
		func() { steps.OK(t, steps.Renew(t, b, ks[1])) },
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
// live on with it, whichever was entered first.
func TestShortLeasesEndThoughTheSessionLives(t *testing.T) {
	s, b, other := twoSessions(t)
	stays := steps.Hold(t, b, steps.Claim("stays"))
	begun := time.Now()
	after := map[string]time.Duration{"second": time.Second, "first": 500 * time.Millisecond}
	held := map[string]driver.Ticket{}
	for _, key := range []string{"second", "first"} {
		held[key] = steps.Hold(t, b, steps.TTL(steps.Claim(key), after[key]))
	}
	for key, ttl := range after {
		next := steps.Granted(t, other, steps.Enter(t, other, steps.Claim(key)))
		if took := time.Since(begun); took < ttl {
			t.Errorf("the %s claim, with a lease of %v, was in line for %v", key, ttl, took)
		}
		steps.Gone(t, "Renew after its lease", steps.Renew(t, b, held[key]))
		steps.Leave(t, other, next)
	}
	steps.OK(t, steps.Renew(t, b, stays))
	steps.Leave(t, b, stays)
	empty(t, s)
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
	renews(t, b, k)
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
	b := connect(t, &Options{SessionTimeout: 15 * time.Second}, s) // which is given up after two thirds
	// The client has seen more than the server will know.
	for i := range 20 {
		steps.Leave(t, b, steps.Hold(t, b, steps.Claim(fmt.Sprint(i))))
	}
	k := steps.Hold(t, b, steps.Claim("k"))
	steps.Must(t, s.Restart())
	eventually(t, "the claim is gone", func() bool { return driver.Gone(steps.Renew(t, b, k)) })
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("k")))
	empty(t, s)
}

func TestBreakOfACrashedHolderLeavesNothing(t *testing.T) {
	s, crashed, b := twoSessions(t)
	k := steps.Hold(t, crashed, steps.Claim("k"))
	crashed.crash() // it does not hear
	steps.Must(t, b.Break(t.Context(), "k", k.Token, driver.Break{Reason: "it hangs"}))
	a := admin(t, s)
	records := func() int { return len(tree(t, a, prefix(t)+brokenDir)) }
	// Another process comes when nobody can ask for it any more.
	sweeper := connect(t, long, s)
	sess, err := sweeper.session(t.Context())
	steps.Must(t, err)
	sweeper.sweepBroken(sess, time.Now().UnixMilli())
	steps.Same(t, "records while somebody may ask for them", records(), 1)
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
			_, err := b.Enter(steps.Soon(t), steps.Claim("k"))
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
	steps.Leave(t, boss, steps.Hold(t, boss, steps.Claim("k")))
}

// A server does not say which right is missing on which node. The error does, and names
// the lock's key, or the Prefix where there is no key yet.
func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	s := server(t)
	a := admin(t, s)
	b := connect(t, long, s)
	steps.Must(t, b.Connect(t.Context()))
	for letter, lacks := range map[string]struct {
		permission int32
		verb       string
	}{
		"c": {zk.PermCreate, "create nodes in"}, "d": {zk.PermDelete, "delete nodes in"},
		"r": {zk.PermRead, "read"}, "w": {zk.PermWrite, "write to"},
	} {
		key := "no " + letter
		line := b.lineOf(key)
		steps.Must(t, steps.ErrOf(a.Create(line, nil, 0, zk.WorldACL(zk.PermAll&^lacks.permission))))
		_, unread := b.Line(t.Context(), key)
		k, err := b.Enter(t.Context(), steps.Claim(key))
		if err = cmp.Or(unread, err); err == nil {
			err = b.Leave(t.Context(), k, driver.Exit{})
		}
		denied(t, err, strconv.Quote(key), lacks.verb+" "+strconv.Quote(line), "permission "+letter)
	}
	steps.Must(t, steps.ErrOf(a.Create("/shut", nil, 0, zk.WorldACL(zk.PermRead))))
	err := connect(t, &Options{Prefix: "/shut/locks"}, s).Connect(t.Context())
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
		ctx := within(t, 200*time.Millisecond)
		_, err := b.Enter(ctx, steps.Claim("other"))
		errs := []error{err, b.Renew(ctx, []driver.Ticket{k})[0], b.Leave(ctx, k, driver.Exit{}), b.Break(ctx, "k", 1, driver.Break{})}
		for i, err := range errs {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: call %d answered %v; want that its time is over", name, i, err)
			}
		}
	}
	steps.Must(t, s.Continue())
	// What Enter and Leave had sent is settled when the server goes on.
	steps.Gone(t, "Leave", paused.Leave(steps.Soon(t), driver.Ticket{Claim: steps.Claim("other")}, driver.Exit{Tombstone: true}))
}

// Nothing is asked on a new connection before the client has said what it has seen, and who asks: a server that has not
// heard of the last write may not answer that the claim is not there.
func TestNothingIsAskedByNobody(t *testing.T) {
	_, p := proxied(t)
	b := through(t, p, &Options{SessionTimeout: 9 * time.Minute, Digest: "clerk:hush"})
	k := steps.Hold(t, b, steps.Claim("k"))
	for range 20 {
		p.Forget()
		p.Cut()
		renews(t, b, k)
		// The connection before may have sent something until it was cut.
		rs := p.Requests()
		first := slices.IndexFunc(rs, func(r faultproxy.Request) bool { return r.First })
		if first < 0 || first+1 == len(rs) || op(&rs[first+1]) != opSetAuth {
			t.Fatalf("the requests are %v, place %d begins a new connection; want to be introduced by %d", requests(p), first, opSetAuth)
		}
		if seen, made := int64(binary.BigEndian.Uint64(rs[first].Data[8:])), k.Token>>spanBits; seen < made {
			t.Errorf("the client says that it has seen transaction %#x; its claim was made by %#x", seen, made)
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
		_, err := b.Enter(steps.Soon(t), steps.TTL(steps.Claim("k"), 100*time.Millisecond))
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
	steps.OK(t, steps.Renew(t, b, k)) // after ten seconds, and not after a quarter of the session
	steps.Leave(t, b, k)
	empty(t, s)
}
