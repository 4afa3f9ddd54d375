package testserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

var sentinel = kind{
	name:    "redis-sentinel",
	program: redis.program,
	install: redis.install,
	prepare: writeSentinelConfig,
	args: func(s *Server) []string {
		return []string{filepath.Join(s.dir, "sentinel.conf"), "--sentinel"}
	},
	ready: redisAnswers,
	url:   func(s *Server) string { return "redis://" + s.Addr() },
}

// SentinelGroup is a master with two replicas, and three sentinels that watch them
// and agree by two.
type SentinelGroup struct {
	Name      string    // what the sentinels call the master
	Servers   []*Server // the first was the master at first
	Sentinels []*Server
}

// RedisSentinel starts such a group for a test, and stops it when the test ends. It
// returns when each server knows all others. opts are for the three servers. A master
// that does not answer for half a second counts as dead.
func RedisSentinel(tb TB, opts ...Option) *SentinelGroup {
	tb.Helper()
	g := &SentinelGroup{Name: "locks"}
	for range 3 {
		g.Servers = append(g.Servers, Redis(tb, append(replication(), opts...)...))
	}
	master := g.Servers[0]
	for _, s := range g.Servers[1:] {
		if err := s.Follow(master.Addr()); err != nil {
			tb.Fatalf("%v", err)
		}
	}
	for range 3 {
		s, err := start(context.Background(), sentinel, tb.TempDir(), []Option{Config(g.watch(master)...)})
		if err != nil {
			tb.Fatalf("%v", err)
		}
		g.Sentinels = append(g.Sentinels, attach(tb, s))
		// They are made to talk more often, so that a test need not wait for it.
		pace(tb, s, "INFO-PERIOD", "200", "PUBLISH-PERIOD", "100", "ASK-PERIOD", "100")
	}
	mustCome(tb, "the sentinels know each other and all replicas", g.Settled)
	for _, s := range g.Sentinels {
		// Four of these after a promotion that it has not heard of, a sentinel undoes it.
		pace(tb, s, "PUBLISH-PERIOD", "1000")
	}
	return g
}

// pace sets how often a sentinel does something. Those before 7.0 cannot be told.
func pace(tb TB, s *Server, periods ...string) {
	tb.Helper()
	_, err := s.Ask(append([]string{"SENTINEL", "DEBUG"}, periods...)...)
	if err != nil && !strings.Contains(err.Error(), "Unknown sentinel subcommand") {
		tb.Fatalf("%v", err)
	}
}

// replication is for servers whose replicas are promoted by tests. Without a disk in
// between, a replica says that it follows its master a second before it learns anything new.
func replication() []Option {
	return []Option{Config("repl-diskless-sync no", "repl-ping-replica-period 1")}
}

// Follow makes a Redis a replica of the master at an address, and returns when it hears from it.
func (s *Server) Follow(master string) error {
	host, port, err := net.SplitHostPort(master)
	if err != nil {
		return err
	}
	if _, err := s.Ask("REPLICAOF", host, port); err != nil {
		return err
	}
	return comesToPass("the replica on "+s.Addr()+" follows its master", func() bool { return linked(s) })
}

// linked reports whether a server is a replica that hears from its master.
func linked(s *Server) bool {
	return strings.Contains(answer(s, "INFO", "replication"), "master_link_status:up")
}

func (g *SentinelGroup) watch(master *Server) []string {
	host, port, _ := net.SplitHostPort(master.Addr())
	lines := []string{
		fmt.Sprintf("sentinel monitor %s %s %s 2", g.Name, host, port),
		fmt.Sprintf("sentinel down-after-milliseconds %s 500", g.Name),
		fmt.Sprintf("sentinel failover-timeout %s 3000", g.Name),
	}
	if p := master.opts.password; p != "" {
		lines = append(lines, fmt.Sprintf("sentinel auth-pass %s %s", g.Name, strconv.Quote(p)))
	}
	return lines
}

// Addrs returns the addresses of the sentinels, as a failover client wants them.
func (g *SentinelGroup) Addrs() []string { return addrs(g.Sentinels) }

func addrs(all []*Server) []string {
	var addrs []string
	for _, s := range all {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Master returns the server that all running sentinels say is the master and that
// says so itself, or nil if there is none just now.
func (g *SentinelGroup) Master() *Server {
	said := ""
	for _, s := range g.Sentinels {
		if s.Pid() == 0 {
			continue
		}
		addr := g.says(s)
		if said != "" && addr != said {
			return nil
		}
		said = addr
	}
	return first(g.Servers, func(s *Server) bool { return s.Addr() == said && isMaster(s) })
}

// says is what a sentinel takes for the address of the master.
func (g *SentinelGroup) says(sentinel *Server) string {
	return strings.Replace(answer(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", g.Name), "\n", ":", 1)
}

// first is the first server of which f is true, or nil.
func first(all []*Server, f func(s *Server) bool) *Server {
	if i := slices.IndexFunc(all, f); i >= 0 {
		return all[i]
	}
	return nil
}

func isMaster(s *Server) bool { return strings.HasPrefix(answer(s, "ROLE"), "master") }

// Settled reports whether the group has a master, each other server that runs follows
// it, and the sentinels know all of that.
func (g *SentinelGroup) Settled() bool {
	master := g.Master()
	if master == nil {
		return false
	}
	replicas := 0
	for _, s := range g.Servers {
		if s == master || s.Pid() == 0 {
			continue
		}
		replicas++
		if !follows(s, master) || !linked(s) {
			return false
		}
	}
	for _, s := range g.Sentinels {
		if s.Pid() == 0 {
			continue
		}
		seen := answer(s, "SENTINEL", "MASTER", g.Name)
		others := fmt.Sprintf("\nnum-other-sentinels\n%d\n", len(g.Sentinels)-1)
		if !strings.Contains(seen, "\nflags\nmaster\n") || !strings.Contains(seen, others) {
			return false
		}
		// A replica that was not asked yet cannot be promoted.
		if strings.Count(answer(s, "SENTINEL", "REPLICAS", g.Name), "master-link-status\nok") < replicas {
			return false
		}
	}
	return true
}

// Failover asks for another master while the present one is well, and returns when
// there is one. It asks again if the sentinel gives up, as when no replica has answered lately.
func (g *SentinelGroup) Failover() error {
	old := g.Master()
	if old == nil {
		return fmt.Errorf("failing over: there is no master just now")
	}
	asked := g.Sentinels[0]
	return comesToPass("there is another master", func() bool {
		if now := g.Master(); now != nil && now != old {
			return true
		}
		if g.says(asked) == old.Addr() {
			answer(asked, "SENTINEL", "FAILOVER", g.Name) // refused while it is at it
		}
		return false
	})
}

// writeSentinelConfig writes the file once: a sentinel keeps there what it learns.
func writeSentinelConfig(s *Server) error {
	port := fmt.Sprintf("port %d", s.port)
	old, err := os.ReadFile(filepath.Join(s.dir, "sentinel.conf"))
	if err == nil && strings.Contains(string(old), port+"\n") {
		return nil
	}
	return s.writeConfig("sentinel.conf", "bind 127.0.0.1", port, "daemonize no", "dir "+strconv.Quote(s.dir))
}

// answer is what a server says, or nothing if it does not answer soon.
func answer(s *Server, args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	text, _ := s.ask(ctx, args...) // empty after an error
	return text
}

func mustAsk(tb TB, s *Server, args ...string) {
	tb.Helper()
	if _, err := s.Ask(args...); err != nil {
		tb.Fatalf("%s on %s: %v", args[0], s.Addr(), err)
	}
}

// comesToPass waits until what is said holds.
func comesToPass(what string, holds func() bool) error { return await(patience, what, holds) }

func await(within time.Duration, what string, holds func() bool) error {
	end := time.Now().Add(within)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(end) {
			return fmt.Errorf("it did not come to pass within %v: %s", within, what)
		}
		<-tick.C
	}
	return nil
}

// Eventually waits until what is said holds, and ends the test if that takes longer than within.
func Eventually(tb TB, within time.Duration, what string, holds func() bool) {
	tb.Helper()
	if err := await(within, what, holds); err != nil {
		tb.Fatalf("%v", err)
	}
}

// WithinAMinute is Eventually for what a test waits for while claims have leases of a minute, or longer: the end of one
// must not pass for it.
func WithinAMinute(tb TB, what string, holds func() bool) {
	tb.Helper()
	Eventually(tb, time.Minute, what, holds)
}

func mustCome(tb TB, what string, holds func() bool) {
	tb.Helper()
	if err := comesToPass(what, holds); err != nil {
		tb.Fatalf("%v", err)
	}
}
