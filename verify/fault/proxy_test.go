package fault

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"
)

// echo is a server that repeats each line, and tells what it heard.
func echo(t *testing.T) (addr string, heard chan string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

func dial(t *testing.T, p *Proxy) (say func(string), answer func(within time.Duration) (string, error)) {
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	r := bufio.NewReader(c)
	return func(s string) { fmt.Fprintln(c, s) }, func(within time.Duration) (string, error) {
		if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
			return "", err
		}
		return r.ReadString('\n')
	}
}

// shortly is how long the tests wait for what must not come; long is enough for what must.
const (
	shortly = 50 * time.Millisecond
	long    = 10 * time.Second
)

func TestProxyBreaksWhatItIsToldTo(t *testing.T) {
	addr, heard := echo(t)
	p, err := NewProxy(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	say, answer := dial(t, p)
	works := func(word string) {
		t.Helper()
		say(word)
		if got, err := answer(long); got != word+"\n" {
			t.Fatalf("%q comes back as %q, %v", word, got, err)
		}
		<-heard
	}
	works("one")

	p.Silence(ToServer)
	say("two")
	select {
	case word := <-heard:
		t.Fatalf("the server heard %q through a silent way", word)
	case <-time.After(shortly):
	}
	p.Heal()
	if got, err := answer(long); got != "two\n" {
		t.Fatalf("what was held back arrives as %q, %v", got, err)
	}
	<-heard

	p.Silence(ToClient)
	say("three")
	if word := <-heard; word != "three" {
		t.Fatalf("the server heard %q", word)
	}
	if got, err := answer(shortly); err == nil {
		t.Fatalf("the client heard %q through a silent way", got)
	}
	p.Heal()
	if got, err := answer(long); got != "three\n" {
		t.Fatalf("what was held back arrives as %q, %v", got, err)
	}

	p.Slow(100 * time.Millisecond)
	begun := time.Now()
	works("four")
	if took := time.Since(begun); took < 100*time.Millisecond {
		t.Errorf("a slow round trip took %v; want 100ms at least", took)
	}
	p.Heal()

	p.Cut()
	if got, err := answer(long); err == nil {
		t.Errorf("the client heard %q on a connection that was cut", got)
	}
	say, answer = dial(t, p)
	works("five")
}

// A detour asks where to: the first line is for it, and what follows is not, also where both
// come at once.
func TestDetourGoesWhereTheFirstLineSays(t *testing.T) {
	one, _ := echo(t)
	two, _ := echo(t)
	p, err := NewDetour()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, addr := range []string{one, two} {
		say, answer := dial(t, p)
		say(addr + "\nhello")
		if got, err := answer(long); got != "hello\n" {
			t.Fatalf("%q, %v; want what was said", got, err)
		}
		p.Silence(ToClient)
		say("held back")
		if got, err := answer(shortly); err == nil {
			t.Errorf("%q passed in silence", got)
		}
		p.Heal()
	}
	say, answer := dial(t, p)
	say("127.0.0.1:1")
	if got, err := answer(long); err == nil {
		t.Errorf("%q came from where nobody is", got)
	}
}
