package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// line is one line of one of two terminals. Lines are in the order in which they appeared.
type line struct {
	terminal int
	text     string
	typed    bool
}

// job is what a reader can paste: it ends when somebody presses Enter.
const job = `echo "begin, token $FENCELOCK_TOKEN"; read key; echo end`

// record builds the command and runs it in two terminals on one lock. The second one waits for
// the first, which works until the second waits.
func record(ctx context.Context) ([]line, error) {
	dir, err := os.MkdirTemp("", "fencelock-pictures-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	build := exec.CommandContext(ctx, "go", "build", "-o", dir, "github.com/fencelock/fencelock/cmd/fencelock")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the command: %w\n%s", err, out)
	}
	var r recording
	first, err := r.run(ctx, dir, 0)
	if err != nil {
		return nil, err
	}
	defer first.stop()
	if err := first.shows(ctx, "begin"); err != nil {
		return nil, err
	}
	second, err := r.run(ctx, dir, 1)
	if err != nil {
		return nil, err
	}
	defer second.stop()
	if err := second.shows(ctx, "waiting for"); err != nil {
		return nil, err
	}
	for _, s := range []*session{first, second} {
		if err := s.finish(ctx); err != nil {
			return nil, err
		}
	}
	return r.lines, nil
}

// recording gathers the lines of all terminals.
type recording struct {
	mu    sync.Mutex
	lines []line
}

func (r *recording) add(l line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, l)
}

// session is one run of the command in a terminal.
type session struct {
	cmd   *exec.Cmd
	stdin io.Closer
	said  chan string // each line, closed at the end
}

func (r *recording) run(ctx context.Context, dir string, terminal int) (*session, error) {
	r.add(line{terminal, "fencelock run nightly -- sh -c '" + job + "'", true})
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "fencelock"), "run", "nightly", "--", "sh", "-c", job)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "FENCELOCK_URL=sqlite:"+filepath.Join(dir, "locks.db"))
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = in, in
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	err = cmd.Start()
	in.Close()
	if err != nil {
		return nil, err
	}
	s := &session{cmd, stdin, make(chan string, 100)}
	go func() {
		defer close(s.said)
		defer out.Close()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			r.add(line{terminal, lines.Text(), false})
			s.said <- lines.Text()
		}
	}()
	return s, nil
}

// shows waits for a line with a text.
func (s *session) shows(ctx context.Context, text string) error {
	for {
		select {
		case l, ok := <-s.said:
			if !ok {
				return fmt.Errorf("the run ended without %q", text)
			}
			if strings.Contains(l, text) {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("waited for %q: %w", text, ctx.Err())
		}
	}
}

// finish lets the command go on to its end.
func (s *session) finish(ctx context.Context) error {
	if err := s.stdin.Close(); err != nil {
		return err
	}
	if err := s.shows(ctx, "end"); err != nil {
		return err
	}
	return s.cmd.Wait()
}

func (s *session) stop() { _ = s.cmd.Process.Kill() } // has ended, or is in the way of an error

// terminals returns the files that show a recording: two terminals, one below the other. The
// numbers at the right are the order in which the lines appeared.
func terminals(lines []line) map[string]string {
	files := map[string]string{}
	for _, t := range themes {
		for _, chinese := range []bool{false, true} {
			c := &canvas{theme: t, chinese: chinese, width: 480}
			drawTerminals(c, lines)
			files[fileName("terminals", t, chinese)] = c.svg()
		}
	}
	return files
}

const perLine = 51 // characters that fit into a terminal of the picture

func drawTerminals(c *canvas, lines []line) {
	y := 10
	for terminal, title := range []string{c.say("terminal 1", "终端 1"), c.say("terminal 2", "终端 2")} {
		top := y
		y += 56
		var text canvas
		for i, l := range lines {
			if l.terminal != terminal {
				continue
			}
			text.sized(462, y, 12, "end", c.muted, fmt.Sprint(i+1))
			for _, part := range wrap(l) {
				colour := c.ink
				if l.typed {
					colour = c.holds
				}
				text.add(`<text x="28" y="%d" font-size="13" font-family="%s" xml:space="preserve" fill="%s">%s</text>`,
					y, mono, colour, escape(part))
				y += 20
			}
		}
		c.box(10, top, 460, y-top-4, c.band, c.rule)
		c.sized(28, top+24, 13, "start", c.muted, title)
		c.body.WriteString(text.body.String())
		y += 10
	}
	c.height = y
}

// wrap breaks a line at blanks.
func wrap(l line) []string {
	text := l.text
	if l.typed {
		text = "$ " + text
	}
	var parts []string
	for len(text) > perLine {
		cut := strings.LastIndex(text[:perLine], " ")
		if cut < 1 {
			break
		}
		parts, text = append(parts, text[:cut]), "  "+text[cut+1:]
	}
	return append(parts, text)
}
