package others

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// fakeStore keeps locks in the memory of the test. It answers lines with ok or no.
type fakeStore struct {
	listener net.Listener

	mu    sync.Mutex
	locks map[string]fakeLock
	next  map[string]fakeLock // who gets the lock as soon as it is free, whether or not it wants it still
}

type fakeLock struct {
	owner string
	ttl   time.Duration
	end   time.Time
}

func startFakeStore(t *testing.T) *fakeStore {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	steps.Must(t, err)
	s := &fakeStore{listener: l, locks: map[string]fakeLock{}, next: map[string]fakeLock{}}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return s
}

func (s *fakeStore) Addr() string { return s.listener.Addr().String() }

func (s *fakeStore) Restart(...testserver.Option) error { return nil }

func (s *fakeStore) serve(c net.Conn) {
	defer c.Close()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		answer := "no"
		if s.do(strings.Fields(lines.Text())) {
			answer = "ok"
		}
		fmt.Fprintln(c, answer)
	}
}

// do does VERB KEY OWNER TTL_MS.
func (s *fakeStore) do(words []string) bool {
	ms, err := strconv.Atoi(words[3])
	if err != nil {
		return false
	}
	key, now := words[1], time.Now()
	l := fakeLock{owner: words[2], ttl: time.Duration(ms) * time.Millisecond}
	l.end = now.Add(l.ttl)
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.locks[key]
	free := !now.Before(had.end)
	switch words[0] {
	case "take":
		if !free {
			return false
		}
		s.locks[key] = l
	case "renew":
		if free || had.owner != l.owner {
			return false
		}
		s.locks[key] = l
	case "leave":
		if free || had.owner != l.owner {
			return false
		}
		n := s.next[key]
		n.end = now.Add(n.ttl)
		s.locks[key], s.next[key] = n, fakeLock{}
	case "reserve":
		s.next[key] = l
	}
	return true
}

// Ways in which the fake adapter is wrong, or right.
const (
	right    = "right"    // renews, and tells its holder at the end of its lease
	silent   = "silent"   // renews nothing, and tells nothing
	everyone = "everyone" // grants to all
	leftOver = "leftover" // leaves a claim behind when a waiter gives up
)

// fakeAdapter speaks the protocol for one lock at a time.
type fakeAdapter struct {
	way, owner string
	conn       net.Conn

	key  string
	ttl  time.Duration
	over chan struct{} // closed by an unlock

	mu      sync.Mutex
	answers *bufio.Scanner
}

func runFakeAdapter(way, addr string, in io.Reader) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	f := &fakeAdapter{way: way, owner: strconv.Itoa(os.Getpid()), conn: conn, answers: bufio.NewScanner(conn)}
	fmt.Println("ready fake")
	for lines := bufio.NewScanner(in); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if words[0] == "unlock" {
			close(f.over)
			fmt.Println(map[bool]string{true: "released", false: "lost"}[f.ask("leave", f.key, f.ttl)])
			continue
		}
		ms, err := strconv.Atoi(words[2])
		if err != nil {
			return err
		}
		f.key, f.ttl = words[1], time.Duration(ms)*time.Millisecond
		fmt.Println(f.lock(words[3:]))
	}
	return nil
}

func (f *fakeAdapter) ask(verb, key string, ttl time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintln(f.conn, verb, key, f.owner, ttl.Milliseconds())
	return f.answers.Scan() && f.answers.Text() == "ok"
}

func (f *fakeAdapter) lock(wait []string) string {
	var end time.Time
	if len(wait) == 1 {
		ms, _ := strconv.Atoi(wait[0])
		end = time.Now().Add(time.Duration(ms) * time.Millisecond)
	}
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for sent := time.Now(); !f.ask("take", f.key, f.ttl) && f.way != everyone; sent = time.Now() {
		if !end.IsZero() && sent.After(end) {
			if f.way == leftOver {
				f.ask("reserve", f.key, f.ttl)
			}
			return "refused"
		}
		<-poll.C
	}
	f.over = make(chan struct{})
	if f.way != silent {
		go f.keep(f.over, f.key, f.ttl)
	}
	return "held"
}

// keep renews the lock, and tells when its lease is over.
func (f *fakeAdapter) keep(over chan struct{}, key string, ttl time.Duration) {
	deadline := time.Now().Add(ttl)
	renewed := make(chan time.Time, 1)
	next := time.After(ttl / 3)
	for {
		select {
		case <-over:
			return
		case deadline = <-renewed:
			next = time.After(ttl / 3)
		case <-next:
			end := time.Now().Add(ttl)
			go func() {
				if f.ask("renew", key, ttl) {
					renewed <- end
				}
			}()
		case <-time.After(time.Until(deadline)):
			fmt.Println("told by the clock")
			return
		}
	}
}
