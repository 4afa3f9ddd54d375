package postgres_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// Workers are this test binary again, as processes of their own: a goroutine cannot
// be stopped or killed alone.

// order is what a worker is to do. It comes as JSON in an environment variable.
type order struct {
	Do   string // the name of a function below
	DSN  string
	Poll bool // it cannot listen
	Key  string
	TTL  time.Duration
	N    int
	File string // for what is guarded, and for a log beside it
}

const orderVariable = "FENCELOCK_TEST_ORDER"

// worker runs the order of the environment, and returns false if there is none.
func worker() bool {
	text := os.Getenv(orderVariable)
	if text == "" {
		return false
	}
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fail(err)
	}
	db, err := sql.Open("pgx", o.DSN)
	if err != nil {
		fail(err)
	}
	db.SetMaxOpenConns(4)
	options := &sqllock.Options{CreateTables: true}
	if !o.Poll {
		options.Listen = listenOn(o.DSN)
	}
	b := sqllock.New(db, sqllock.Postgres, options)
	jobs := map[string]func(order, *sqllock.Backend) error{
		"count": count, "hold": holdUntilTold, "queue": queueOnce, "pingpong": queueAgain,
		"storm": storm, "renew": renewForEver, "create": create,
	}
	if err := jobs[o.Do](o, b); err != nil {
		fail(err)
	}
	b.Close()
	db.Close()
	return true
}

func fail(err error) {
	fmt.Println("error", err)
	os.Exit(1)
}

// say tells the parent something.
func say(words ...any) { fmt.Println(words...) }

// told waits for a line from the parent. It returns false when there will be none.
func told() bool {
	_, err := stdin.ReadString('\n')
	return err == nil
}

var stdin = bufio.NewReader(os.Stdin)

// take enters and waits for its grant.
func take(b driver.Backend, c driver.Claim) (driver.Ticket, error) {
	ctx := context.Background()
	t, err := b.Enter(ctx, c)
	for err == nil && !t.Granted {
		t, err = b.Await(ctx, t)
	}
	return t, err
}

// count adds N to a number in a file, not atomically, one by one under the lock, and
// logs the token of each hold.
func count(o order, b *sqllock.Backend) error {
	for range o.N {
		t, err := take(b, ttl(claim(o.Key), o.TTL))
		if err != nil {
			return err
		}
		text, err := os.ReadFile(o.File)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return err
		}
		log, err := os.OpenFile(o.File+".log", os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		fmt.Fprintln(log, t.Token)
		log.Close()
		if err := os.WriteFile(o.File, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
			return err
		}
		if err := b.Leave(context.Background(), t, driver.Exit{}); err != nil {
			return err
		}
	}
	say("done")
	return nil
}

// holdUntilTold takes the lock, and leaves when it is told to.
func holdUntilTold(o order, b *sqllock.Backend) error {
	t, err := take(b, ttl(claim(o.Key), o.TTL))
	if err != nil {
		return err
	}
	say("held", t.Token)
	told()
	say("left", b.Leave(context.Background(), t, driver.Exit{}))
	return nil
}

// queueOnce stands in line and says when it is granted.
func queueOnce(o order, b *sqllock.Backend) error {
	t, err := b.Enter(context.Background(), ttl(claim(o.Key), o.TTL))
	if err != nil {
		return err
	}
	say("waits", t.Token)
	for !t.Granted {
		if t, err = b.Await(context.Background(), t); err != nil {
			return err
		}
	}
	say("held", t.Token)
	told()
	say("left", b.Leave(context.Background(), t, driver.Exit{}))
	return nil
}

// queueAgain stands in line N times, says when it was granted each time, and leaves
// when it is told to.
func queueAgain(o order, b *sqllock.Backend) error {
	for range o.N {
		t, err := b.Enter(context.Background(), ttl(claim(o.Key), o.TTL))
		if err != nil {
			return err
		}
		say("waits", t.Token)
		for !t.Granted {
			if t, err = b.Await(context.Background(), t); err != nil {
				return err
			}
		}
		say("held", time.Now().UnixNano())
		told()
		if err := b.Leave(context.Background(), t, driver.Exit{}); err != nil {
			return err
		}
		say("left")
	}
	return nil
}

// storm takes and leaves locks, until it is killed.
func storm(o order, b *sqllock.Backend) error {
	for i := 0; ; i++ {
		c := ttl(claim(fmt.Sprint(o.Key, i%3)), o.TTL)
		if i%5 == 0 {
			c.Weight = 1
		}
		t, err := take(b, c)
		if err != nil && !driver.Gone(err) {
			return err
		}
		if i%7 == 0 {
			b.Renew(context.Background(), []driver.Ticket{t})
		}
		e := driver.Exit{}
		if i%11 == 0 {
			e.Mark = driver.Mark(fmt.Sprint("mark ", i))
		}
		if err := b.Leave(context.Background(), t, e); err != nil && !driver.Gone(err) {
			return err
		}
		if i == 0 {
			say("works")
		}
	}
}

// renewForEver holds the lock and renews it until that fails, and then says what
// Leave answers.
func renewForEver(o order, b *sqllock.Backend) error {
	t, err := take(b, ttl(claim(o.Key), o.TTL))
	if err != nil {
		return err
	}
	say("held", t.Token)
	tick := time.NewTicker(o.TTL / 4)
	defer tick.Stop()
	for range tick.C {
		if err := b.Renew(context.Background(), []driver.Ticket{t})[0]; err != nil {
			say("renew", driver.Gone(err), err)
			break
		}
	}
	err = b.Leave(context.Background(), t, driver.Exit{})
	say("leave", driver.Gone(err), err)
	return nil
}

// create waits for a word and then makes the first call.
func create(o order, b *sqllock.Backend) error {
	say("ready")
	told()
	t, err := take(b, ttl(claim(o.Key), o.TTL))
	if err != nil {
		return err
	}
	say("held", t.Token)
	return b.Leave(context.Background(), t, driver.Exit{})
}

// process is a worker as its parent sees it.
type process struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out chan string // lines
	end chan error
}

// start starts a worker that ends with the test at the latest.
func start(t testing.TB, o order) *process {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(os.Args[0]), out: make(chan string, 10000), end: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), orderVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			p.out <- lines.Text()
		}
		close(p.out)
		p.end <- p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		p.in.Close()
	})
	return p
}

// hears waits for a line that begins with word, and returns the rest of it.
func (p *process) hears(word string) string {
	p.t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	select {
	case line, ok := <-p.out:
		rest, is := strings.CutPrefix(line, word)
		if !ok || !is {
			p.t.Fatalf("the worker said %q; want %q", line, word)
		}
		return strings.TrimSpace(rest)
	case <-limit.C:
		p.t.Fatalf("the worker did not say %q within 30s", word)
	}
	return ""
}

// tell sends a line.
func (p *process) tell() { fmt.Fprintln(p.in) }

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %v: %v", s, err)
	}
}

// kill ends the worker as kill -9 does, and waits until it is gone.
func (p *process) kill() {
	err := p.cmd.Process.Kill()
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("kill: %v", err)
	}
	if p.end != nil {
		<-p.end
		p.end = nil
	}
}

// succeeds waits for the worker to end well.
func (p *process) succeeds() {
	p.t.Helper()
	for line := range p.out {
		p.t.Logf("worker: %s", line)
	}
	err := <-p.end
	p.end = nil
	if err != nil {
		p.t.Fatalf("the worker ended with %v", err)
	}
}
