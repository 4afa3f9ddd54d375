package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// pods are the names of those that start at once.
var pods = []string{"a", "b", "c"}

// outcome is what came of a deployment.
type outcome struct {
	applied map[string]int // migrations, by the pods that came so far as to serve
	pieces  map[string]int // what each of them serves
	failed  []string       // pods that gave up
	killed  string         // the pod that was killed, or nothing
	missed  time.Duration  // from the kill until another pod could migrate
	waited  int            // pods that waited for the lock
	tokens  []int64        // of those that could migrate, the first one first
	version int            // the last one that the database says was applied
	dirty   bool           // as golang-migrate calls one that may be half done
}

func (o outcome) String() string {
	s := fmt.Sprintf("%d of %d pods serve, %d failed", len(o.applied), len(pods), len(o.failed))
	if o.killed != "" {
		s += fmt.Sprintf(", 1 killed and followed after %v", o.missed.Round(time.Millisecond))
	}
	return s
}

// deploy plays the i-th deployment. say, if any, is told what each pod says.
func (c *cluster) deploy(ctx context.Context, i int, say func(pod, line string)) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	d := deployments[i]
	name := fmt.Sprintf("shop%d", i)
	if _, err := c.db.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return outcome{}, err
	}
	direct := database(c.postgres.URL(), name)
	db, err := sql.Open("pgx", direct)
	if err != nil {
		return outcome{}, err
	}
	defer db.Close()
	gate, err := closeGate(ctx, db)
	if err != nil {
		return outcome{}, err
	}
	defer gate.Close()

	address := direct
	if d.pooled {
		address = database(c.pgbouncer.URL(), name)
	}
	r := &release{
		say: say, outcome: outcome{applied: map[string]int{}, pieces: map[string]int{}}, running: map[string]*process{},
	}
	defer r.end()
	if err := r.reachGate(ctx, d.tool, address, db); err != nil {
		return outcome{}, err
	}
	if d.killed {
		r.killHolder()
	}
	if _, err := gate.ExecContext(ctx, "SELECT pg_advisory_unlock(1)"); err != nil {
		return outcome{}, err
	}
	r.all.Wait()
	if err := ctx.Err(); err != nil {
		return outcome{}, err
	}
	noted := "SELECT count(*), false FROM goose_db_version WHERE version_id > 0 AND is_applied"
	if d.tool == "migratelock" {
		noted = "SELECT version, dirty FROM schema_migrations"
	}
	err = db.QueryRowContext(ctx, noted).Scan(&r.version, &r.dirty)
	return r.outcome, err
}

// reachGate starts the pods, and waits until one is in the second migration. The others wait for
// the lock or, where there is none, wait for the database or have failed.
func (r *release) reachGate(ctx context.Context, tool, address string, db *sql.DB) error {
	for _, pod := range pods {
		if err := r.start(ctx, pod, tool, address); err != nil {
			return err
		}
	}
	if err := r.begin(); err != nil {
		return err
	}
	return until(ctx, "the pods are at the gate", func() (bool, error) {
		inside, blocked, err := atGate(ctx, db)
		r.mu.Lock()
		defer r.mu.Unlock()
		if tool == "goose" {
			return inside == 1 && blocked+len(r.failed) == len(pods)-1, err
		}
		return inside == 1 && r.holder != "" && r.waited == len(pods)-1, err
	})
}

// database is the address of another database of the same server. Poolers do not know
// prepared statements, or only of late.
func database(address, name string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err) // the server's own
	}
	u.Path = "/" + name
	q := u.Query()
	q.Set("default_query_exec_mode", "exec")
	u.RawQuery = q.Encode()
	return u.String()
}

// closeGate holds what the second migration waits for.
func closeGate(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	gate, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := gate.ExecContext(ctx, "SELECT pg_advisory_lock(1)"); err != nil {
		return nil, errors.Join(err, gate.Close())
	}
	return gate, nil
}

// atGate counts who waits for the gate, and who waits for a lock of the database's own.
func atGate(ctx context.Context, db *sql.DB) (inside, blocked int, err error) {
	err = db.QueryRowContext(ctx, `SELECT
		count(*) FILTER (WHERE wait_event = 'advisory'),
		count(*) FILTER (WHERE wait_event <> 'advisory')
		FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&inside, &blocked)
	return inside, blocked, err
}

func until(ctx context.Context, what string, reached func() (bool, error)) error {
	for {
		if ok, err := reached(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		}
	}
}

// release is a deployment that goes on.
type release struct {
	say func(pod, line string)
	all sync.WaitGroup

	mu sync.Mutex
	outcome
	running  map[string]*process
	holder   string // the pod that may migrate
	killedAt time.Time
}

type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ready chan bool // closed when it is, or has ended
}

func (r *release) start(ctx context.Context, pod, tool, address string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p := &process{cmd: exec.CommandContext(ctx, self, "pod", tool, address), ready: make(chan bool)}
	p.cmd.Env = append(os.Environ(), "MIGRATION_POD=1") // the test's binary looks at it
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	r.running[pod] = p
	r.all.Go(func() {
		ready := sync.OnceFunc(func() { close(p.ready) })
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == "ready" {
				ready()
			} else {
				r.hear(pod, lines.Text())
			}
		}
		ready()
		_ = p.cmd.Wait() // it has said why
	})
	return nil
}

// begin lets all pods go on when all are ready.
func (r *release) begin() error {
	for _, p := range r.running {
		<-p.ready
	}
	for pod, p := range r.running {
		if _, err := io.WriteString(p.in, "go\n"); err != nil {
			return fmt.Errorf("pod %s: %w", pod, err)
		}
	}
	return nil
}

// hear notes what a pod says.
func (r *release) hear(pod, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.say != nil {
		r.say(pod, line)
	}
	var token int64
	var applied, pieces int
	if _, err := fmt.Sscanf(line, "may migrate, token %d", &token); err == nil {
		r.holder = pod
		r.tokens = append(r.tokens, token)
		if r.killed != "" && r.missed == 0 {
			r.missed = time.Since(r.killedAt)
		}
	}
	if _, err := fmt.Sscanf(line, "migrations applied: %d; serves %d pieces", &applied, &pieces); err == nil {
		r.applied[pod], r.pieces[pod] = applied, pieces
	}
	if line == "waits" {
		r.waited++
	}
	if strings.HasPrefix(line, "failed") {
		r.failed = append(r.failed, pod)
	}
}

// killHolder kills the pod that migrates, as kill -9 does.
func (r *release) killHolder() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed, r.killedAt = r.holder, time.Now()
	_ = r.running[r.killed].cmd.Process.Kill()
	if r.say != nil {
		r.say(r.killed, "is killed in the middle of the second migration")
	}
}

// end leaves no pod behind.
func (r *release) end() {
	for _, p := range r.running {
		_ = p.cmd.Process.Kill()
	}
	r.all.Wait()
}
