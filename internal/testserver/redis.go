package testserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

var redis = kind{
	name:    "redis-server",
	program: "redis-server",
	install: "on Debian run: apt-get install redis-server; elsewhere see https://redis.io/docs/latest/",
	prepare: writeRedisConfig,
	args:    func(s *Server) []string { return []string{filepath.Join(s.dir, "redis.conf")} },
	ready:   redisAnswers,
	url:     func(s *Server) string { return s.address("redis", "", "").String() },
}

// Redis starts a redis-server for a test.
var Redis = forTest(always(redis))

// StartRedis starts a redis-server in a folder.
var StartRedis = inFolder(always(redis))

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
		// Any of a group may be a replica one day, and needs the password then.
		p := strconv.Quote(s.opts.password)
		lines = append(lines, "requirepass "+p, "masterauth "+p)
	}
	return s.writeConfig("redis.conf", lines...)
}

// redisAnswers asks PING. A server that is still loading says so, and is not ready. One that
// knows other users only is.
func redisAnswers(ctx context.Context, s *Server) error {
	_, err := s.ask(ctx, "PING")
	if err != nil && strings.HasPrefix(err.Error(), "NOAUTH") {
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
	return s.ask(ctx, args...)
}

// Calls returns how often a Redis server was given any of these commands since it started, or since CONFIG RESETSTAT.
func (s *Server) Calls(commands ...string) (n int, err error) {
	stats, err := s.Ask("INFO", "commandstats")
	for line := range strings.Lines(stats) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !slices.Contains(commands, name) {
			continue
		}
		digits, _, _ := strings.Cut(rest, ",")
		calls, wrong := strconv.Atoi(digits)
		n, err = n+calls, errors.Join(err, wrong)
	}
	return n, err
}

func (s *Server) ask(ctx context.Context, args ...string) (string, error) {
	request, answers := command(args...), 1
	if s.opts.password != "" {
		request, answers = command("AUTH", s.opts.password)+request, 2
	}
	return s.exchange(ctx, request, func(r io.Reader) (text []byte, err error) {
		for replies := bufio.NewReader(r); err == nil && answers > 0; answers-- {
			text, err = reply(replies)
		}
		return text, err
	})
}

// command is a command in RESP2.
func command(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

// reply reads a reply in RESP2.
func reply(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	rest := strings.TrimRight(line[1:], "\r\n")
	switch line[0] {
	case '+', ':':
		return []byte(rest), nil
	case '-':
		return nil, errors.New(rest)
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return nil, fmt.Errorf("no length in %q", line)
	}
	switch line[0] {
	case '$':
		if n < 0 {
			return nil, nil
		}
		b := make([]byte, n+2)
		_, err := io.ReadFull(r, b)
		return b[:n], err
	case '*':
		parts := make([][]byte, max(n, 0))
		for i := range parts {
			if parts[i], err = reply(r); err != nil {
				return nil, err
			}
		}
		return bytes.Join(parts, []byte("\n")), nil
	}
	return nil, fmt.Errorf("an unknown reply %q", line)
}
