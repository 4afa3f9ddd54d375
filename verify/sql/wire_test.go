package sql_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/sqllock"
)

// through puts a proxy between programs and the database. Other stores that are made of s go
// another way.
func (s *store) through(t testing.TB) *faultproxy.Proxy {
	t.Helper()
	if s.dialect == sqllock.MySQL {
		p := faultproxy.Start(t, s.on.Addr(), faultproxy.MySQL)
		s.dsn = mariaDSN(p.Addr(), s.name, s.params...)
		return p
	}
	u, err := url.Parse(s.dsn)
	must(t, err)
	p := faultproxy.Start(t, u.Host, faultproxy.Postgres)
	u.Host = p.Addr()
	s.dsn = u.String()
	return p
}

// trips counts the round trips since it was last called: on SQLite, where nothing goes over a
// wire, the transactions.
func (s *store) trips(t testing.TB) func() int {
	t.Helper()
	if s.dialect == sqllock.SQLite {
		log := &wal{path: s.name + "-wal"}
		return func() int { return log.commits(t) }
	}
	p := s.through(t)
	return func() (n int) {
		for _, r := range p.Requests() {
			if s.dialect == sqllock.MySQL {
				if command, ok := r.Command(); ok && !strings.Contains(command, "SESSION VARIABLES") {
					n++ // a connection is asked for its settings once
				}
			} else if !r.First && r.Asks && !bytes.Contains(r.Data,
				[]byte("-- ping")) { // pgx asks every second who is alive
				n++
			}
		}
		p.Forget()
		return n
	}
}

// wal reads along in a database's write-ahead log.
type wal struct {
	path string
	at   int64 // how far it was read
}

// commits counts the transactions since the last call.
func (w *wal) commits(t testing.TB) (n int) {
	t.Helper()
	f, err := os.Open(w.path)
	must(t, err)
	defer f.Close()
	head := make([]byte, 32)
	must(t, second(f.ReadAt(head, 0)))
	page := int64(binary.BigEndian.Uint32(head[8:]))
	frame := make([]byte, 24)
	for w.at = max(w.at, int64(len(head))); ; w.at += int64(len(frame)) + page {
		if _, err := f.ReadAt(frame, w.at); err != nil || string(frame[8:16]) != string(head[16:24]) {
			return n // the end, or what is left of an older log
		}
		if binary.BigEndian.Uint32(frame[4:]) != 0 { // the size of the database after a commit
			n++
		}
	}
}

// TestRoundTrips counts what each step costs, under DSNs that make drivers speak in different
// ways.
func TestRoundTrips(t *testing.T) {
	each(t, []kind{
		sqlite.with("Log", "file:%s?_pragma=journal_mode(WAL)&_pragma=wal_autocheckpoint(0)"),
		postgres.with("cache_statement", "default_query_exec_mode=cache_statement"),
		postgres.with("exec", "default_query_exec_mode=exec"),
		postgres.with("simple_protocol", "default_query_exec_mode=simple_protocol"),
		pgBouncer, mariaDB,
		mariaDB.with("InterpolateParams", "interpolateParams=true", "parseTime=true"),
	}, func(t *testing.T, s *store) {
		trips := s.trips(t)
		b := s.backendOn(t, s.one(t))
		// The first time a statement may have to be prepared.
		b.Renew(soon(t), []driver.Ticket{{Claim: claim("warm")}})
		warm, other := hold(t, b, claim("warm")), wait(t, b, claim("warm"))
		busy(t, b, "warm")
		renewed(t, b, warm)
		leave(t, b, other, warm)
		use(t, b, "warm")
		want := func(what string, n int) {
			t.Helper()
			steps.Same(t, "round trips of "+what, trips(), n)
		}
		trips()
		holder := hold(t, b, claim("k"))
		want("Enter of a free lock", 1)
		w := wait(t, b, claim("k"))
		switch busy(t, b, "k"); s.dialect {
		case sqllock.SQLite:
			want("Enter of a held lock, and one that does not wait", 1) // which writes nothing
		case sqllock.Postgres:
			want("Enter of a held lock, and one that does not wait", 1+2)
		default: // it is told its place by another statement, and one that has done nothing looks at its session
			want("Enter of a held lock, and one that does not wait", 2+3)
		}
		swap := 2 // to read the line, and to write it
		if s.dialect == sqllock.SQLite {
			swap = 1
		}
		renewed(t, b, holder)
		want("Renew", 1)
		leave(t, b, w)
		want("Leave of a waiter", 1)
		leave(t, b, holder)
		switch s.dialect { // it tries to leave without a look first
		case sqllock.Postgres:
			swap++
		case sqllock.MySQL:
			swap += 2
		}
		want("Leave of a holder in whose line others were", swap)
		var many []driver.Ticket
		for i := range 150 {
			many = append(many, hold(t, b, ttl(claim(fmt.Sprint("key", i)), time.Hour)))
		}
		want("Enter of 150 new keys", 150)
		renewed(t, b, many...)
		if s.dialect == sqllock.MySQL {
			want("Renew of 150", 2)
		} else {
			want("Renew of 150", 1)
		}
		leave(t, b, many...)
		want("Leave of 150", 150)
		empty(t, b)
	})
}

// TestGrantIsHeardWithoutReadingTheLine: a process that waits polls, or listens and polls, and the poll says whom a swap
// has granted. A claim that has waited for a tenth of a second reads the line once, so only quick rounds count.
func TestGrantIsHeardWithoutReadingTheLine(t *testing.T) {
	each(t, []kind{postgres.with("exec", "default_query_exec_mode=exec"), pgBouncer, mariaDB},
		func(t *testing.T, s *store) {
			a, c := s.backend(t), s.backend(t)
			p := s.through(t)
			b := s.backend(t)
			use(t, b, "k")
			quick, reads := 0, 0
			for rounds := 0; quick < 16 && rounds < 160; rounds++ {
				holder, began := hold(t, a, claim("k")), time.Now()
				w, last := wait(t, b, claim("k")), wait(t, c, claim("k"))
				at := behind(func() driver.Ticket { return granted(t, b, w) })
				pause(settled)
				p.Forget()
				leave(t, a, holder)
				w = <-at
				if time.Since(began) < 90*time.Millisecond { // real time: a slower round is left out
					quick++
					for _, r := range p.Requests() {
						if bytes.Contains(r.Data, []byte("LEFT JOIN fencelock_swap")) {
							reads++
						}
					}
				}
				leave(t, b, w)
				leave(t, c, granted(t, c, last))
			}
			// A process that reads the line for each grant would do so each time. One that does not may look late for
			// the round before, and looks each second.
			if t.Logf("%d quick hand-overs", quick); reads > quick/2 {
				t.Errorf("in %d hand-overs the line was read %d times", quick, reads)
			}
		})
}

// TestHolderThatHeardOfItsGrantLeavesOthersInLine: with the news of its grant a process reads the line, and leaves it by
// what it has read. A claim behind it, with a lease of its own, stays in line.
func TestHolderThatHeardOfItsGrantLeavesOthersInLine(t *testing.T) {
	each(t, []kind{postgres, postgres.with("exec", "default_query_exec_mode=exec"), mariaDB, sqlite},
		func(t *testing.T, s *store) {
			a, b, c := s.backend(t), s.backend(t), s.backend(t)
			holder := hold(t, a, claim("k"))
			w, last := wait(t, b, claim("k")), wait(t, c, claim("k"))
			must(t, c.Renew(t.Context(), []driver.Ticket{last})[0])
			at := behind(func() driver.Ticket { return granted(t, b, w) })
			pause(settled)
			leave(t, a, holder)
			leave(t, b, <-at)
			leave(t, c, granted(t, c, last))
			empty(t, a)
		})
}

// TestFirstRenewalOfALongLineIsOneStep: claims that wait get leases of their own when they renew first. What that costs
// does not grow with how many of them wait.
func TestFirstRenewalOfALongLineIsOneStep(t *testing.T) {
	each(t, []kind{sqlite.with("Log", "file:%s?_pragma=journal_mode(WAL)&_pragma=wal_autocheckpoint(0)"), postgres,
		pgBouncer, mariaDB}, func(t *testing.T, s *store) {
		trips := s.trips(t)
		b := s.polling(t)
		lines := map[string][]driver.Ticket{}
		for _, key := range []string{"k", "l"} {
			for range 31 {
				ticket, err := b.Enter(soon(t), claim(key))
				must(t, err)
				lines[key] = append(lines[key], ticket)
			}
		}
		renewed(t, b, lines["l"][0]) // has a connection
		trips()
		renewed(t, b, append(lines["k"], lines["l"]...)...)
		if n := trips(); n > 16 {
			t.Errorf("the first renewal of 62 claims in two lines took %d round trips", n)
		}
		renewed(t, b, append(lines["k"], lines["l"]...)...)
		if n := trips(); n > 4 {
			t.Errorf("the second renewal of 62 claims in two lines took %d round trips", n)
		}
		line := append(lines["k"], lines["l"]...)
		slices.Reverse(line) // most give up
		leave(t, b, line...)
		steps.Same(t, "leases are left", ask[int](t, s, "SELECT count(*) FROM fencelock_lease WHERE ending > 0"), 0)
	})
}

// texts are what the statements of a step have in them.
var texts = map[string][]string{
	"enter": {`'{"token":'`}, "renew": {"renewals = renewals + 1", "renewals = l.renewals + 1"},
	"leave": {"SET expires = CASE", "SET expires = 0"}, "break": {"SET expires = CASE"},
}

// isOf reports whether a request has a statement of a step.
func isOf(r *faultproxy.Request, step string) bool {
	return slices.ContainsFunc(texts[step], func(text string) bool { return bytes.Contains(r.Data, []byte(text)) })
}

// TestAnswerLost cuts the connection of each step before it was applied, and after. The
// answer is an error that says neither yes nor no, and the step can be sent again.
func TestAnswerLost(t *testing.T) {
	// Without prepared statements each step is one request, whatever connection it is on.
	each(t, []kind{postgres.with("exec", "default_query_exec_mode=exec"), pgBouncer, mariaDB},
		func(t *testing.T, s *store) {
			p := s.through(t)
			b := s.backendOn(t, s.one(t))
			rounds := 0
			for name, action := range map[string]faultproxy.Action{
				"BeforeItWasApplied": faultproxy.DropRequest, "AfterItWasApplied": faultproxy.DropAnswer,
			} {
				t.Run(name, func(t *testing.T) {
					rounds++
					mark := fmt.Sprint(rounds) // a smaller one would be left out
					// cut breaks the connection at the next step of that name.
					cut := func(step string) {
						done := false
						p.Handle(func(r *faultproxy.Request) faultproxy.Action {
							if done || !isOf(r, step) {
								return faultproxy.Pass
							}
							done = true
							return action
						})
					}
					use(t, b, "k") // a connection is there, and all is prepared
					c := claim("k")
					cut("enter")
					unsure(t, "Enter", second(b.Enter(soon(t), c)))
					one := hold(t, b, c)
					steps.Same(t, "the token of a repeated Enter", hold(t, b, c).Token, one.Token)
					steps.InLine(t, "after a repeated Enter", b, "k", 1)

					cut("renew")
					unsure(t, "Renew", renew(b, soon(t), one))
					renewed(t, b, one)

					w := wait(t, b, claim("k"))
					cut("leave")
					unsure(t, "Leave with a mark", b.Leave(soon(t), one, driver.Exit{Mark: mark}))
					well(t, "a repeated Leave with a mark", b.Leave(soon(t), one, driver.Exit{Mark: mark}))
					w = granted(t, b, w)
					steps.Same(t, "the mark", w.Mark, mark)

					cut("break")
					unsure(t, "Break", b.Break(soon(t), "k", w.Token, driver.Break{Reason: "why"}))
					if err := b.Break(soon(t), "k", w.Token, driver.Break{Reason: "why"}); err != nil && !driver.Gone(err) {
						t.Errorf("a repeated Break: %v", err)
					}
					var broken driver.GoneError
					if err := renew(b, soon(t), w); !errors.As(err, &broken) || broken.Reason != "why" {
						t.Errorf("Renew of a broken claim answered %v; want the reason", err)
					}

					// An Enter that is given up. A Leave of which nothing is known keeps out an Enter
					// that comes later.
					for _, step := range []string{"enter", "leave"} {
						late := claim("k")
						cut(step)
						if step == "enter" {
							unsure(t, "Enter", second(b.Enter(soon(t), late)))
						} else {
							unsure(t, "Leave without a token", b.Leave(soon(t), driver.Ticket{Claim: late}, driver.Exit{Tombstone: true}))
						}
						b.Leave(soon(t), driver.Ticket{Claim: late}, driver.Exit{Tombstone: true})
						gone(t, "an Enter after its Leave", second(b.Enter(soon(t), late)))
					}
					empty(t, b)
				})
			}
		})
}

// TestAnswerLostWithLibPQ has a driver that says driver.ErrBadConn also of what it has sent. A
// Leave or Break that is sent again finds nobody then, which does not mean that the claim was
// lost before.
func TestAnswerLostWithLibPQ(t *testing.T) {
	only(t, postgres.with("BinaryParameters", "binary_parameters=yes"), func(t *testing.T, s *store) {
		s.driver = "postgres"
		p := s.through(t)
		b := s.backendOn(t, s.one(t))
		for _, step := range []string{"Leave", "Break"} {
			use(t, b, "k") // a connection is there
			holder := hold(t, b, claim("k"))
			done := false
			p.Handle(func(r *faultproxy.Request) faultproxy.Action {
				if done || !isOf(r, strings.ToLower(step)) {
					return faultproxy.Pass
				}
				done = true
				return faultproxy.DropAnswer
			})
			unsure(t, step+" whose answer was lost", verbs(b, holder)[step](soon(t)))
			gone(t, step+" again", verbs(b, holder)[step](soon(t)))
			empty(t, b)
		}
	})
}

// TestWhoWaitsAsksUntilListenIsInEffect counts what a process that waits asks the server. One that is busy takes long
// to make a connection, and that is when many wait.
func TestWhoWaitsAsksUntilListenIsInEffect(t *testing.T) {
	no := errors.New("no")
	connected := make(chan struct{})
	for name, listen := range map[string]listen{
		"AfterAWhile": listenAfter(connected),
		"AtOnce":      func(context.Context, string, func()) error { return no },
		"Later": func(_ context.Context, _ string, heard func()) error {
			heard()
			return no
		},
	} {
		t.Run(name, func(t *testing.T) {
			only(t, postgres.with("exec", "default_query_exec_mode=exec"), func(t *testing.T, s *store) {
				other, trips := s.polling(t), s.trips(t)
				told := s.new(t, s.open(t), &sqllock.Options{CreateTables: true, Listen: listen})
				holder, w := hold(t, other, claim("k")), wait(t, told, claim("k"))
				asks := func() int { // about a second: thrice at most if it is told
					trips()
					steps.OK(t, second(told.Await(soon(t), w)))
					return trips()
				}
				until(t, "who waits asks again and again", func() bool { return asks() > 3 })
				if name == "AfterAWhile" {
					close(connected)
					until(t, "who waits is told", func() bool {
						var all int
						began := time.Now()
						for range 4 {
							all += asks()
						}
						return all <= 1+3*int(time.Since(began).Seconds())
					})
				}
				leave(t, other, holder)
				leave(t, told, granted(t, told, w))
				empty(t, other)
			})
		})
	}
}

// TestLongWaitsAskRarely counts what twenty waiters of one process, who wait for long,
// ask of the server.
func TestLongWaitsAskRarely(t *testing.T) {
	only(t, mariaDB, func(t *testing.T, s *store) {
		other := s.polling(t)
		holder := hold(t, other, claim("k"))
		p := s.through(t)
		b := s.polling(t)
		const waiters = 20
		var readers [waiters]driver.Ticket
		var wg sync.WaitGroup
		for i := range readers {
			w := wait(t, b, reader("k"))
			wg.Go(func() { readers[i] = granted(t, b, w) })
		}
		count := func() map[string]int {
			asked := map[string]int{}
			for _, r := range p.Requests() {
				command, _ := r.Command()
				switch {
				case strings.Contains(command, "SELECT l.lock_key, l.news"):
					asked["news"]++
				case strings.Contains(command, "LEFT JOIN fencelock_swap"):
					asked["line"]++
				case strings.Contains(command, "SESSION VARIABLES"), strings.HasPrefix(command, "SELECT @@autocommit"):
				default:
					asked[command]++
				}
			}
			return asked
		}
		pause(3 * time.Second)
		p.Forget()
		began := time.Now()
		pause(3 * time.Second)
		asked, long := count(), int(time.Since(began).Seconds())
		t.Logf("%d waiters asked %v within %d s", waiters, asked, long)
		news, looks := asked["news"], asked["line"]
		delete(asked, "news")
		delete(asked, "line")
		if news > 10*long || looks > 10*long || len(asked) > 0 {
			t.Errorf("%d waiters asked %d times for news, read the line %d times and sent %v within %d s; "+
				"want one poll for all, some times a second", waiters, news, looks, asked, long)
		}
		leave(t, other, holder)
		wg.Wait()
		leave(t, b, readers[:]...)
		empty(t, other)
	})
}
