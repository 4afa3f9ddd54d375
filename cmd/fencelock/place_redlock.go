package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/quorumlock"
)

// member is an open member of a quorum.
type member struct {
	backend driver.Backend
	ask     func(ctx context.Context) error // once, whether anybody is there
	close   func()                          // closes what backend works on
}

// membersForm is how a quorum of several kinds of stores is written.
const membersForm = "redlock:redis://host:port/db,postgres://user@host:port/db,…"

// readMembers reads what follows redlock: in such a URL. Nothing of it is repeated: a
// password with a comma in it would look like a member.
func readMembers(list, from string) ([]*place, error) {
	var members []*place
	for i, raw := range strings.Split(list, ",") {
		m, err := parsePlace(raw, from)
		switch {
		case err == nil && m.scheme.member != nil:
			members = append(members, m)
			continue
		case err == nil && !m.scheme.server:
			return nil, usage("member %d of the redlock URL is on this host alone: on another host that name is another store, and a majority here would be none there; write %s", i+1, membersForm)
		case err == nil:
			return nil, usage("member %d of the redlock URL cannot be one of a quorum; write %s", i+1, membersForm)
		case errors.Is(err, errShown):
			return nil, err
		}
		return nil, usage("member %d of the redlock URL cannot be read; write %s, without ? and #, and percent-encode special characters of a password", i+1, membersForm)
	}
	return members, nil
}

// checkRedlock reads redlock://host:port,host:port,host:port/db, which are Redis servers,
// and checks members that were read already. Every process names all of the servers: a
// majority is counted of those.
func checkRedlock(p *place) error {
	if p.members == nil {
		if err := checkRedlockHosts(p); err != nil {
			return err
		}
		return distinct(p)
	}
	var texts, hosts []string
	for i, m := range p.members {
		// What was not said for one member is what was said for all.
		if m.secret.password == "" {
			m.secret.password = p.secret.password
		}
		if err := m.scheme.check(m); err != nil {
			var own *failure
			if errors.As(err, &own) {
				return fail(own.code, "member %d of the redlock URL: %s", i+1, own)
			}
			return err
		}
		texts, hosts = append(texts, m.text), append(hosts, m.url.Host)
	}
	p.url.Host = strings.Join(hosts, ",")
	p.text = p.scheme.name + " of " + strings.Join(texts, ", ")
	return distinct(p)
}

// checkRedlockHosts makes members of the Redis servers that the URL names.
func checkRedlockHosts(p *place) error {
	if err := checkRedisHosts(p, "6379"); err != nil {
		return err
	}
	db := strings.Trim(p.url.Path, "/")
	if db == "" {
		db = "0"
	}
	if n, err := strconv.Atoi(db); err != nil || n < 0 {
		return usage("what follows the hosts of the redlock URL is not the number of a database; write %s, and percent-encode special characters of a password", p.scheme.form)
	}
	p.url.Path = db
	p.text = p.scheme.name + " " + p.url.Host
	if db != "0" {
		p.text += "/" + db
	}
	for _, h := range strings.Split(p.url.Host, ",") {
		p.members = append(p.members, &place{
			scheme: &scheme{name: "redis", member: redisMember},
			url:    &url.URL{Scheme: "redis", Host: h, Path: db},
			text:   h,
			secret: p.secret,
		})
	}
	return nil
}

// distinct wants as many servers as a quorum has. Two databases of one server are lost
// together.
func distinct(p *place) error {
	if n := len(p.members); n < 3 || n > 9 || n%2 == 0 {
		return usage("a quorum has 3, 5, 7 or 9 independent servers, and the redlock URL names %d; write %s", n, p.scheme.form)
	}
	seen := map[string]bool{}
	for _, m := range p.members {
		if seen[m.url.Host] {
			return usage("the redlock URL names one server twice: a majority of names would not be a majority of servers")
		}
		seen[m.url.Host] = true
	}
	return nil
}

// openRedlock wants a majority of the servers to answer.
func openRedlock(ctx context.Context, p *place) (*store, error) {
	var members []*member
	var backends []driver.Backend
	var names []string
	end := func() {
		for _, m := range members {
			_ = m.backend.Close()
			m.close()
		}
	}
	for _, at := range p.members {
		m, err := at.scheme.member(at)
		if err != nil {
			end()
			return nil, err
		}
		members, backends, names = append(members, m), append(backends, m.backend), append(names, at.text)
	}
	b := quorumlock.New(backends, &quorumlock.Options{Names: names})
	if err := majority(ctx, members); err != nil {
		_ = b.Close()
		end()
		return nil, err
	}
	return &store{b, func() { _ = b.Close(); end() }}, nil
}

// majority asks all servers at once and returns when a majority has answered.
func majority(ctx context.Context, members []*member) error {
	answers := make(chan error, len(members))
	for _, m := range members {
		go func() { answers <- m.ask(ctx) }()
	}
	up, need := 0, len(members)/2+1
	var last error
	for range members {
		err := <-answers
		switch {
		case err == nil:
			if up++; up == need {
				return nil
			}
		case errors.As(err, new(deniedError)):
			return err
		default:
			last = err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%d of %d servers answer, and %d are needed: %w", up, len(members), need, last)
}
