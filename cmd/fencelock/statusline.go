package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/terminal"
)

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// terminalWidth is how many columns the terminal f has, or 0.
func terminalWidth(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// say prints one line to people.
func say(format string, args ...any) {
	status.print(fmt.Sprintf("fencelock: %s", terminal.OneLine(fmt.Sprintf(format, args...))))
}

// statusLine is the last line of a terminal, which is written anew while something goes on.
// Other lines are printed above it.
type statusLine struct {
	mu   sync.Mutex
	text string // "" if there is none
}

// status is the status line of stderr.
var status statusLine

const clearLine = "\r\x1b[K"

// print prints one line.
func (s *statusLine) print(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text != "" {
		fmt.Fprint(os.Stderr, clearLine)
	}
	fmt.Fprintln(os.Stderr, line)
	fmt.Fprint(os.Stderr, s.text)
}

// set writes the status line, or removes it if text is empty.
func (s *statusLine) set(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text == s.text {
		return
	}
	s.text = text
	fmt.Fprint(os.Stderr, clearLine+text)
}

// waitingLine shows on a terminal how long one waits already, who holds the lock, and how
// many are ahead. The store's answers to a call that waits say so about once a second.
type waitingLine struct {
	name  string
	ended chan struct{} // closed by end

	mu     sync.Mutex
	began  time.Time // zero before the first answer
	over   bool
	holder fencelock.HeldError
}

func newWaitingLine(name string) *waitingLine {
	return &waitingLine{name: quote(name), ended: make(chan struct{})}
}

// observe takes the answer to an Enter or an Await. The first that waits begins the line.
func (w *waitingLine) observe(t driver.Ticket, err error) {
	if w == nil || err != nil || t.Granted {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	if w.began.IsZero() {
		w.began = time.Now()
		go w.keep()
	}
	if h := t.Head; h != nil {
		w.holder = fencelock.HeldError{Standing: fencelock.Standing{Owner: h.Owner, Note: h.Note, Since: h.Since}}
	} else if t.Ahead != w.holder.Ahead {
		w.holder = fencelock.HeldError{} // another one by now, and the answer does not say who
	}
	w.holder.Ahead = t.Ahead
}

// keep draws the line twice a second.
func (w *waitingLine) keep() {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.draw()
		case <-w.ended:
			return
		}
	}
}

func (w *waitingLine) draw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	text := fmt.Sprintf("fencelock: waiting for %s for %s, %s", w.name, span(time.Since(w.began)), waitsFor(&w.holder))
	width := terminalWidth(os.Stderr)
	if width == 0 {
		width = 80 // a terminal that does not say
	}
	status.set(cut(text, width-1))
}

// end removes the line.
func (w *waitingLine) end() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.over = true
		close(w.ended)
		status.set("")
	}
}
