package others

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

// line is what an adapter said, and when it was read.
type line struct {
	at         time.Time
	word, rest string
}

// process is a lock in a process of its own.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	done    <-chan struct{}
	answers chan line
	version string

	mu      sync.Mutex
	beliefs []span // the times in which it believed that it held the lock
	pauses  []span // the times in which it was stopped
	told    []line // what its library told it unasked
	trouble string // the last error
}

// startProcess starts an adapter, and returns when it is connected.
func startProcess(command []string, stderr *os.File) (*process, error) {
	p := &process{cmd: exec.Command(command[0], command[1:]...), answers: make(chan line, 64)}
	p.cmd.Stderr = stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in = in
	if p.done, err = testserver.Spawn(p.cmd); err != nil {
		return nil, err
	}
	go p.read(out)
	l, ok := p.answer(patience)
	if !ok || l.word != "ready" {
		p.kill()
		return nil, fmt.Errorf("%s is not ready: %s %s", strings.Join(command, " "), l.word, l.rest)
	}
	p.version = l.rest
	return p, nil
}

// patience is how long an adapter may take to connect, and to answer an unlock.
const patience = 30 * time.Second

// read notes what the adapter says until it ends.
func (p *process) read(out io.Reader) {
	defer close(p.answers)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		l := line{at: time.Now()}
		l.word, l.rest, _ = strings.Cut(lines.Text(), " ")
		p.note(l)
		if l.word != "told" && l.word != "doubt" {
			p.answers <- l
		}
	}
}

func (p *process) note(l line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch l.word {
	case "held":
		p.beliefs = append(p.beliefs, span{from: l.at})
	case "error":
		p.trouble = l.rest
	case "told", "doubt":
		p.told = append(p.told, l)
		closeLast(p.beliefs, l.at)
	}
}

// answer waits for the next answer. ok is false if there was none in time.
func (p *process) answer(within time.Duration) (l line, ok bool) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case l, ok = <-p.answers:
		return l, ok
	case <-timer.C:
		return line{}, false
	}
}

func (p *process) say(format string, args ...any) error {
	_, err := fmt.Fprintf(p.in, format+"\n", args...)
	return err
}

// lock asks for the lock, and does not wait for the answer. A wait of 0 has no end.
func (p *process) lock(key string, ttl, wait time.Duration) error {
	if wait > 0 {
		return p.say("lock %s %d %d", key, ttl.Milliseconds(), wait.Milliseconds())
	}
	return p.say("lock %s %d", key, ttl.Milliseconds())
}

// grant is how a process came to its lock.
type grant struct {
	at    time.Time
	token string
}

// lockUntilHeld asks for the lock again and again until it is held. Only the channel's
// receiver may use p until it has received. The channel is closed without a grant when the
// process has ended.
func (p *process) lockUntilHeld(key string, ttl time.Duration) <-chan grant {
	c := make(chan grant, 1)
	go func() {
		defer close(c)
		for p.lock(key, ttl, 0) == nil {
			l, ok := p.answer(time.Hour)
			switch {
			case !ok:
				return
			case l.word == "held":
				c <- grant{l.at, l.rest}
				return
			}
			select {
			case <-time.After(askAgain):
			case <-p.done:
			}
		}
	}()
	return c
}

// askAgain is the pause after a refusal or an error.
const askAgain = 50 * time.Millisecond

// hold takes a lock that should be free.
func (p *process) hold(key string, ttl time.Duration) error {
	if _, ok := receive(p.lockUntilHeld(key, ttl), patience); !ok {
		return errors.New("a free lock is not granted")
	}
	return nil
}

// unlock gives the lock back, and returns the answer.
func (p *process) unlock() line {
	now := time.Now()
	p.mu.Lock()
	closeLast(p.beliefs, now)
	p.mu.Unlock()
	if err := p.say("unlock"); err != nil {
		return line{at: now, word: "error", rest: err.Error()}
	}
	l, ok := p.answer(unlockPatience)
	if !ok {
		return line{at: now, word: "nothing"}
	}
	return l
}

// unlockPatience is how long an unlock may take. Some have no answer while a connection is dead.
const unlockPatience = 5 * time.Second

func (p *process) stop() error {
	if err := testserver.Pause(p.cmd.Process); err != nil {
		return err
	}
	now := time.Now()
	p.mu.Lock()
	p.pauses = append(p.pauses, span{from: now})
	p.mu.Unlock()
	return testserver.AwaitStop(p.cmd.Process.Pid)
}

func (p *process) goOn() error {
	now := time.Now()
	p.mu.Lock()
	closeLast(p.pauses, now)
	p.mu.Unlock()
	return testserver.Resume(p.cmd.Process)
}

// kill ends the process with kill -9, and returns when it has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	closeLast(p.beliefs, time.Now())
}

// lastError is the last error that it answered.
func (p *process) lastError() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trouble
}

// firstTold returns what the library told its holder first after from.
func (p *process) firstTold(from time.Time) (l line, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.told {
		if !l.at.Before(from) {
			return l, true
		}
	}
	return line{}, false
}

// awaitTold waits until the library has told its holder something after from, but not beyond
// the deadline.
func (p *process) awaitTold(from, deadline time.Time) (l line, ok bool) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if l, ok = p.firstTold(from); ok || time.Now().After(deadline) {
			return l, ok
		}
		<-tick.C
	}
}

func receive(c <-chan grant, within time.Duration) (g grant, ok bool) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case g, ok = <-c:
	case <-timer.C:
		select { // both may be there
		case g, ok = <-c:
		default:
		}
	}
	return g, ok
}

// span is a time. One without an end goes on.
type span struct{ from, to time.Time }

// closeLast ends the last span unless it has ended.
func closeLast(all []span, at time.Time) {
	if n := len(all); n > 0 && all[n-1].to.IsZero() {
		all[n-1].to = at
	}
}

// active are the times in which p believed that it held the lock, and could act on it.
func (p *process) active(now time.Time) []span {
	p.mu.Lock()
	defer p.mu.Unlock()
	return without(ended(p.beliefs, now), ended(p.pauses, now))
}

func ended(all []span, now time.Time) []span {
	var done []span
	for _, s := range all {
		if s.to.IsZero() {
			s.to = now
		}
		done = append(done, s)
	}
	return done
}

// without cuts holes out of spans.
func without(all, holes []span) []span {
	for _, h := range holes {
		var left []span
		for _, s := range all {
			if before := (span{s.from, earlier(s.to, h.from)}); before.from.Before(before.to) {
				left = append(left, before)
			}
			if behind := (span{later(s.from, h.to), s.to}); behind.from.Before(behind.to) {
				left = append(left, behind)
			}
		}
		all = left
	}
	return all
}

// together is for how long two lists of spans overlap.
func together(a, b []span) (sum time.Duration) {
	for _, x := range a {
		for _, y := range b {
			sum += max(0, earlier(x.to, y.to).Sub(later(x.from, y.from)))
		}
	}
	return sum
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
