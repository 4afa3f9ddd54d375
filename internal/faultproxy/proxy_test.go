package faultproxy

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// server repeats each line of its clients, and tells what it heard.
func server(t *testing.T) (addr string, heard chan string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	steps.Must(t, err)
	t.Cleanup(func() { l.Close() })
	heard = make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					heard <- lines.Text()
					fmt.Fprintln(c, lines.Text())
				}
			}()
		}
	}()
	return l.Addr().String(), heard
}

// lines is a protocol whose requests and answers are lines. A line that begins with # is not
// answered in the eyes of the proxy.
var lines = Framer{
	Request: func(r *bufio.Reader, _ bool) ([]byte, bool, error) {
		m, err := r.ReadBytes('\n')
		return m, len(m) > 0 && m[0] != '#', err
	},
	Answer: func(r *bufio.Reader) ([]byte, bool, error) {
		m, err := r.ReadBytes('\n')
		return m, len(m) > 0 && m[0] != '#', err
	},
}

// client is a connection to a proxy.
type client struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func connect(t *testing.T, p *Proxy) *client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	steps.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return &client{t, c, bufio.NewReader(c)}
}

// says sends lines in one write.
func (c *client) says(all ...string) {
	// An error shows in the answer.
	_, _ = fmt.Fprint(c.conn, strings.Join(all, "\n")+"\n")
}

func (c *client) read(within time.Duration) (string, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	line, err := c.r.ReadString('\n')
	return strings.TrimSpace(line), err
}

// hears reads lines.
func (c *client) hears(want ...string) {
	c.t.Helper()
	for _, w := range want {
		if got, err := c.read(long); got != w {
			c.t.Fatalf("the client hears %q, %v; want %q", got, err, w)
		}
	}
}

// hearsNothing sees that nothing comes for a while, and that the connection stays.
func (c *client) hearsNothing() {
	c.t.Helper()
	got, err := c.read(shortly)
	if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
		c.t.Fatalf("the client hears %q, %v; want nothing", got, err)
	}
}

// isCut sees that the connection ends, and that nothing comes before.
func (c *client) isCut() {
	c.t.Helper()
	got, err := c.read(long)
	if timeout, ok := err.(net.Error); err == nil || ok && timeout.Timeout() {
		c.t.Fatalf("the client hears %q, %v; want the end", got, err)
	}
}

// shortly is the wait for what must not come, long the one for what must.
const (
	shortly = 50 * time.Millisecond
	long    = time.Minute
)

func hears(t *testing.T, heard chan string, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-heard:
			if got != w {
				t.Fatalf("the server hears %q; want %q", got, w)
			}
		case <-time.After(long):
			t.Fatalf("the server does not hear %q", w)
		}
	}
}

func hearsNothing(t *testing.T, heard chan string) {
	t.Helper()
	select {
	case got := <-heard:
		t.Fatalf("the server hears %q; want nothing", got)
	case <-time.After(shortly):
	}
}

func TestHoldAndDiscardInEachDirection(t *testing.T) {
	addr, heard := server(t)
	p := Start(t, addr, Framer{})
	c := connect(t, p)
	c.says("one")
	c.hears("one")
	hears(t, heard, "one")

	p.Hold(ToServer)
	c.says("two")
	hearsNothing(t, heard)
	p.Resume()
	c.hears("two")
	hears(t, heard, "two")

	p.Hold(ToClient)
	c.says("three")
	hears(t, heard, "three")
	c.hearsNothing()
	p.Resume()
	c.hears("three")

	p.Discard(ToServer)
	c.says("four")
	hearsNothing(t, heard)
	p.Resume()
	hearsNothing(t, heard)

	p.Discard(ToClient)
	c.says("five")
	hears(t, heard, "five")
	c.hearsNothing()
	p.Resume()
	c.says("six")
	c.hears("six")
}

func TestHeldBytesDoNotSurviveACut(t *testing.T) {
	addr, heard := server(t)
	p := Start(t, addr, Framer{})
	c := connect(t, p)
	c.says("one")
	c.hears("one")
	hears(t, heard, "one")
	p.Hold(ToServer, ToClient)
	c.says("two")
	hearsNothing(t, heard)
	p.Cut()
	p.Resume()
	c.isCut()
	hearsNothing(t, heard)
	c = connect(t, p)
	c.says("three")
	c.hears("three")
}

// What is under way at once is late by one delay, not by one for each message.
func TestDelaysDoNotAddUp(t *testing.T) {
	addr, _ := server(t)
	p := Start(t, addr, lines)
	c := connect(t, p)
	p.Delay(time.Second)
	words := strings.Fields(strings.Repeat("word ", 50))
	begun := time.Now()
	c.says(words...)
	c.hears(words...)
	if took := time.Since(begun); took < time.Second || took > 10*time.Second {
		t.Errorf("a round trip of 50 messages took %v; want a second, and far less than half of it for each", took)
	}
}

// Four lines are sent at once, and the action is for the third.
func TestActions(t *testing.T) {
	all := []string{"a", "#b", "cc", "d"}
	for name, test := range map[string]struct {
		action  Action
		server  []string // hears
		heard   int      // answers that the client hears at least, of the first two
		cut     bool
		resumes bool // what is held back comes after Resume
	}{
		"drop request":   {DropRequest, all[:2], 0, true, false},
		"halve request":  {HalveRequest, []string{"a", "#b", "c"}, 0, true, false},
		"drop answer":    {DropAnswer, all[:3], 1, true, false},
		"discard answer": {DiscardAnswer, all, 0, false, false},
		"hold answer":    {HoldAnswer, all, 0, false, true},
		"hold request":   {HoldRequest, all[:2], 2, false, true},
		"late request":   {LateRequest, all[:2], 0, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			addr, heard := server(t)
			p := Start(t, addr, lines)
			cut := make(chan bool, 1)
			came := p.CutAt(2, test.action, func() { cut <- true }) // nobody waits for an answer to #b
			c := connect(t, p)
			c.says(all...)
			hears(t, heard, test.server...)
			hearsNothing(t, heard)
			testserver.Eventually(t, long, "the request comes", came)
			c.hears(all[:test.heard]...)
			got := all[:test.heard:test.heard] // The answers to the first two lines may be late for the action.
			for line, err := c.read(shortly); err == nil; line, err = c.read(shortly) {
				got = append(got, line)
			}
			if len(got) > 2 || !slices.Equal(got, all[:len(got)]) {
				t.Fatalf("the client hears %q", got)
			}
			if test.cut {
				c.isCut()
				if test.resumes {
					p.Resume()
					hears(t, heard, "cc")
				}
				<-cut
				return
			}
			p.Resume()
			if test.resumes {
				c.hears(all[len(got):]...)
			}
			c.hearsNothing()
		})
	}
}
