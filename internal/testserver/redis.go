package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

var redis = kind{
	name:    "redis-server",
	program: "redis-server",
	install: "on Debian run: apt-get install redis-server; elsewhere see https://redis.io/docs/latest/operate/oss_and_stack/install/",
	prepare: writeRedisConfig,
	args:    func(s *Server) []string { return []string{filepath.Join(s.dir, "redis.conf")} },
	ready:   redisAnswers,
	url: func(s *Server) string {
		u := url.URL{Scheme: "redis", Host: s.Addr()}
		if s.opts.password != "" {
			u.User = url.UserPassword("", s.opts.password)
		}
		return u.String()
	},
}

// Redis starts a redis-server for a test and stops it when the test ends. A
// missing redis-server fails the test.
func Redis(tb TB, opts ...Option) *Server {
	tb.Helper()
	s, err := StartRedis(context.Background(), tb.TempDir(), opts...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return attach(tb, s)
}

// StartRedis starts a redis-server in dir, which must exist and be empty or left
// by an earlier one. The caller stops it.
func StartRedis(ctx context.Context, dir string, opts ...Option) (*Server, error) {
	return start(ctx, redis, dir, opts)
}

func writeRedisConfig(s *Server) error {
	lines := []string{
		"bind 127.0.0.1",
		fmt.Sprintf("port %d", s.port),
		"daemonize no",
		"dir " + strconv.Quote(s.dir),
		`save ""`,
		"appendonly no",
	}
	if s.opts.persist {
		lines = append(lines, "appendonly yes", "appendfsync always")
	}
	if s.opts.password != "" {
		lines = append(lines, "requirepass "+strconv.Quote(s.opts.password))
	}
	lines = append(lines, s.opts.config...)
	text := strings.Join(lines, "\n") + "\n"
	return os.WriteFile(filepath.Join(s.dir, "redis.conf"), []byte(text), 0o600)
}

// redisAnswers asks PING. A server that wants a password or is still loading
// says so: only the latter is not ready.
func redisAnswers(ctx context.Context, s *Server) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := dialRedis(ctx, s.Addr())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.ask("PING")
	var refused redisError
	if errors.As(err, &refused) && strings.HasPrefix(string(refused), "NOAUTH") {
		return nil
	}
	return err
}

// Ask sends one command to a Redis server on a connection of its own and returns
// the reply as text, the elements of an array on a line each. An error reply is
// an error.
func (s *Server) Ask(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := dialRedis(ctx, s.Addr())
	if err != nil {
		return "", err
	}
	defer c.Close()
	if s.opts.password != "" {
		if _, err := c.ask("AUTH", s.opts.password); err != nil {
			return "", err
		}
	}
	return c.ask(args...)
}

// redisError is an error reply.
type redisError string

func (e redisError) Error() string { return string(e) }

// redisConn speaks RESP2.
type redisConn struct {
	net.Conn
	r *bufio.Reader
}

func dialRedis(ctx context.Context, addr string) (*redisConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(end); err != nil {
			c.Close()
			return nil, err
		}
	}
	return &redisConn{c, bufio.NewReader(c)}, nil
}

func (c *redisConn) ask(args ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		return "", err
	}
	return c.reply()
}

func (c *redisConn) reply() (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", errors.New("an empty line where a reply was due")
	}
	rest := line[1:]
	switch line[0] {
	case '+', ':':
		return rest, nil
	case '-':
		return "", redisError(rest)
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return "", fmt.Errorf("no length in %q", line)
	}
	switch line[0] {
	case '$':
		if n < 0 {
			return "", nil
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, b); err != nil {
			return "", err
		}
		return string(b[:n]), nil
	case '*':
		parts := make([]string, 0, max(n, 0))
		for range n {
			p, err := c.reply()
			if err != nil {
				return "", err
			}
			parts = append(parts, p)
		}
		return strings.Join(parts, "\n"), nil
	}
	return "", fmt.Errorf("an unknown reply %q", line)
}
