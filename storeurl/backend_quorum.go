package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/quorumlock"
)

// membersForm is how a quorum is written whose members differ in more than their hosts.
const membersForm = "redlock:redis://user@host:port/db,rediss://host:port/db,…"

// parseMembers reads what follows redlock: in such a URL. Nothing of it is repeated: a
// password with a comma in it would look like a member.
func parseMembers(list string, from Source) ([]*URL, error) {
	var members []*URL
	for i, raw := range strings.Split(list, ",") {
		m, rest, err := split(raw, from)
		switch {
		case errors.Is(err, errVisible):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("member %d of the redlock URL cannot be read; write %s, "+
				"and percent-encode special characters of a password", i+1, membersForm)
		case m.Scheme != "redis" && m.Scheme != "rediss":
			return nil, fmt.Errorf("member %d of the redlock URL is not a Redis server, and members of a quorum are "+
				"Redis servers; write %s", i+1, membersForm)
		}
		m.takeAgreed()
		if err := m.scheme.check(m, rest); err != nil {
			return nil, fmt.Errorf("member %d of the redlock URL: %w", i+1, err)
		}
		if m.onSocket() {
			return nil, fmt.Errorf("member %d of the redlock URL is on this host alone: on another host that name is "+
				"another store, and a majority here would be none there; write %s", i+1, membersForm)
		}
		members = append(members, m)
	}
	return members, nil
}

// checkQuorum reads redlock://host:port,host:port,host:port/db, which are Redis servers,
// and checks members that were read already. Every process names all of the servers: a
// majority is counted of those.
func checkQuorum(u *URL, rest *url.URL) error {
	u.takeAgreed()
	for _, m := range u.Members {
		for name, value := range m.agreed {
			if before, ok := u.agreed[name]; ok && before != value {
				return fmt.Errorf("the members of the redlock URL have two values for %s, which is one for all", name)
			}
			u.agreed[name] = value
		}
	}
	if _, err := u.membership(ballot.Membership{}); err != nil {
		return err
	}
	if u.Members == nil {
		if err := checkRedisMembers(u, rest); err != nil {
			return err
		}
		return u.distinct()
	}
	var texts, hosts []string
	for _, m := range u.Members {
		// What was not said for one member is what was said for all.
		if m.password == "" {
			m.password = u.password
		}
		texts, hosts = append(texts, m.text), append(hosts, m.Host)
	}
	u.Host = strings.Join(hosts, ",")
	u.text = u.Scheme + " of " + strings.Join(texts, ", ")
	return u.distinct()
}

// agreedNames are parameters of a quorum.
var agreedNames = []string{"skew", "quarantine", "durable"}

// takeAgreed takes the parameters of a quorum out of the others, which are for its members. A
// URL with members of its own has them behind any member.
func (u *URL) takeAgreed() {
	u.agreed = map[string]string{}
	for _, name := range agreedNames {
		if value, ok := u.settings[name]; ok {
			u.agreed[name] = value
			delete(u.settings, name)
		}
	}
}

// membership is m with what the URL says of it.
func (u *URL) membership(m ballot.Membership) (ballot.Membership, error) {
	bad := func(name, want string) error {
		return fmt.Errorf("the parameter %s of the redlock URL is %q; want %s", name, u.agreed[name], want)
	}
	var err error
	if text, ok := u.agreed["skew"]; ok {
		if m.Skew, err = time.ParseDuration(text); err != nil || m.Skew <= 0 {
			return m, bad("skew", "a time such as 30s")
		}
	}
	if text, ok := u.agreed["quarantine"]; ok {
		if m.MaxTTL, err = time.ParseDuration(text); err != nil || m.MaxTTL <= 0 {
			return m, bad("quarantine", "a time such as 10m")
		}
	}
	if text, ok := u.agreed["durable"]; ok {
		if m.Durable, err = strconv.ParseBool(text); err != nil {
			return m, bad("durable", "true or false")
		}
	}
	if _, err := m.Settled(); err != nil {
		return m, fmt.Errorf("the parameters skew and quarantine (the MaxTTL) of the redlock URL: %w", err)
	}
	return m, nil
}

// checkRedisMembers makes members of the Redis servers that the URL names.
func checkRedisMembers(u *URL, rest *url.URL) error {
	if err := u.hosts(rest, "6379"); err != nil {
		return err
	}
	u.text = u.Scheme + " " + u.Host
	if err := u.numbered(strings.Trim(rest.Path, "/"), "the hosts"); err != nil {
		return err
	}
	for h := range strings.SplitSeq(u.Host, ",") {
		u.Members = append(u.Members, &URL{
			Scheme: "redis", Host: h, Path: u.Path, scheme: find("redis"), text: h, user: u.user, password: u.password,
			settings: u.settings,
		})
	}
	_, err := u.redisSettings()
	return err
}

// distinct wants as many servers as a quorum has. Two databases of one server are lost
// together.
func (u *URL) distinct() error {
	if n := len(u.Members); n < 3 || n > 9 || n%2 == 0 {
		return fmt.Errorf("a quorum has 3, 5, 7 or 9 independent servers, and the redlock URL names %d; write %s",
			n, u.scheme.form)
	}
	seen := map[string]bool{}
	for _, m := range u.Members {
		if seen[m.Host] {
			return errors.New("the redlock URL names one server twice: " +
				"a majority of names would not be a majority of servers")
		}
		seen[m.Host] = true
	}
	return nil
}

// openQuorum opens all members. Ping wants a majority of them to answer.
func openQuorum(ctx context.Context, u *URL, c *Config) (*Store, error) {
	var members []*Store
	var backends []driver.Backend
	var names []string
	end := func() {
		for _, m := range members {
			m.Close()
		}
	}
	one := *c
	one.member = true
	var err error
	if one.Membership, err = u.membership(c.Membership); err != nil {
		return nil, badConfig("%v", err)
	}
	for _, m := range u.Members {
		s, err := m.scheme.open(ctx, m, &one)
		if err != nil {
			end()
			return nil, err
		}
		members, backends, names = append(members, s), append(backends, s.Backend), append(names, m.text)
	}
	return &Store{
		Backend: quorumlock.New(backends, &quorumlock.Options{Names: names}),
		ping:    func(ctx context.Context) error { return pingMajority(ctx, members, names) },
		close:   end,
	}, nil
}

// pingMajority asks all servers at once and returns when a majority has answered. A server that does
// not let us in is one that is lost: its password may be changed before those of the others.
func pingMajority(ctx context.Context, members []*Store, names []string) error {
	answers := make(chan error, len(members))
	for i, m := range members {
		go func() { answers <- ofMember(names[i], m.Ping(ctx)) }()
	}
	up, need := 0, len(members)/2+1
	var last, permanent error
	for range members {
		err := <-answers
		switch {
		case err == nil:
			if up++; up == need {
				return nil
			}
		case errors.As(err, new(*DeniedError)), errors.Is(err, driver.ErrPermanent):
			permanent = err
		default:
			last = err
		}
	}
	if permanent != nil {
		return permanent
	}
	return fmt.Errorf("%d of %d servers answer, and %d are needed: %w", up, len(members), need, last)
}

// ofMember says of which server err is.
func ofMember(name string, err error) error {
	var denied *DeniedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &denied):
		return &DeniedError{Given: denied.Given, member: name, says: denied.says}
	}
	return fmt.Errorf("%s: %w", name, err)
}
