package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

const (
	envURL      = "FENCELOCK_URL"
	envPassword = "FENCELOCK_PASSWORD"
)

// firstContact bounds how long a server may take to answer for the first time.
// After that the library carries outages.
const firstContact = 5 * time.Second

// nowaitContact bounds how long -n asks for the lock at a store that gives no answer, or
// refuses every call.
const nowaitContact = 3 * time.Second

// place is where the locks are kept. It can be printed: the secrets are apart.
type place struct {
	scheme *scheme
	url    *url.URL // without user and password
	text   string   // for people: "redis 127.0.0.1:6379"
	secret secret
	from   string // the flag or the variable that named it
	notice string // what the embedded default has to say about itself, or ""

	members []*place // of a quorum
}

func (p *place) String() string { return p.text }

// secret is what must not be printed, nor reach a child.
type secret struct{ user, password string }

// String keeps a slip of the pen from printing it.
func (secret) String() string { return "(secret)" }

// store is an open place.
type store struct {
	backend driver.Backend
	close   func()
}

// scheme is a kind of place.
type scheme struct {
	name    string // before the colon
	form    string // how to write it, for people
	server  bool   // it has an address and may ask for a password
	private bool   // nobody outside this process sees its locks

	// check reads the rest of the URL and sets what people see of it.
	check func(p *place) error
	// open connects, and asks once whether anybody is there.
	open func(ctx context.Context, p *place) (*store, error)
	// member opens one member of a quorum, and asks nobody; nil if it cannot be one.
	member func(p *place) (*member, error)
}

// schemes are all the places there are. A new one is a file with two functions, and
// a line here.
func schemes() []scheme {
	return []scheme{
		{name: "local", form: "local:", check: checkLocal, open: openSQLite},
		{name: "memory", form: "memory:", check: checkMemory, open: openMemory, private: true},
		{name: "sqlite", form: "sqlite:///path", check: checkSQLite, open: openSQLite},
		{name: "redis", form: "redis://host:port/db", check: checkRedis, open: openRedis, server: true, member: redisMember},
		{name: "rediss", form: "rediss://host:port/db", check: checkRedis, open: openRedis, server: true, member: redisMember},
		{name: "redis+sentinel", form: "redis+sentinel://host:port,host:port/master-name/db", check: checkSentinel, open: openSentinel, server: true},
		{name: "redis+cluster", form: "redis+cluster://host:port,host:port", check: checkCluster, open: openCluster, server: true},
		{name: "redlock", form: "redlock://host:port,host:port,host:port/db", check: checkRedlock, open: openRedlock, server: true},
		{name: "postgres", form: "postgres://user@host:port/db", check: checkPostgres, open: openPostgres, server: true, member: postgresMember},
		{name: "postgresql", form: "postgresql://user@host:port/db", check: checkPostgres, open: openPostgres, server: true, member: postgresMember},
		{name: "mysql", form: "mysql://user@host:port/db", check: checkMySQL, open: openMySQL, server: true},
		{name: "mariadb", form: "mariadb://user@host:port/db", check: checkMySQL, open: openMySQL, server: true},
		{name: "etcd", form: "etcd://host:port,host:port/prefix", check: checkEtcd, open: openEtcd, server: true},
		{name: "etcds", form: "etcds://host:port,host:port/prefix", check: checkEtcd, open: openEtcd, server: true},
		{name: "zk", form: "zk://host:port,host:port/root", check: checkZooKeeper, open: openZooKeeper, server: true},
	}
}

func schemeForms() string {
	var forms []string
	for _, s := range schemes() {
		forms = append(forms, s.form)
	}
	return strings.Join(forms, ", ")
}

// findPlace settles where the locks are: --url, then FENCELOCK_URL, then the
// embedded default, unless a fencelock around this one kept the URL back. Nothing of a URL that cannot be read is printed, for any part of
// it may be a password.
func (c *cli) findPlace() (*place, error) {
	raw, from := c.url, "--url"
	if raw == "" {
		raw, from = os.Getenv(envURL), envURL
		if err := c.checkWithheld(raw); err != nil {
			return nil, err
		}
	}
	chosen := raw != ""
	if !chosen {
		raw, from = "local:", "the default"
	}
	p, err := c.readPlace(raw, from)
	if err != nil {
		return nil, unusable(err, from)
	}
	p.from = from
	if !chosen {
		p.notice = defaultNotice(p)
	}
	return p, nil
}

// unusable is the end of a verb that cannot use the URL in from: a URL on the command line
// is its user's mistake, and one in the environment a bad configuration.
func unusable(err error, from string) error {
	var own *failure
	if from == envURL && errors.As(err, &own) && own.code == exitUsage {
		return &failure{exitConfig, own.text}
	}
	return err
}

// readPlace reads a URL that was found in from.
func (c *cli) readPlace(raw, from string) (*place, error) {
	p, err := parsePlace(raw, from)
	if err != nil {
		return nil, err
	}
	if p.scheme.name == "redlock" && p.url.Opaque != "" {
		if p.members, err = readMembers(p.url.Opaque, from); err != nil {
			return nil, err
		}
		p.url.Opaque = ""
	}
	if err := c.readPassword(p); err != nil {
		return nil, err
	}
	if err := p.scheme.check(p); err != nil {
		return nil, err
	}
	return p, nil
}

var errShown = usage("a password in --url can be seen by everyone on this host; put the URL into %s, or the password into %s or --password-file", envURL, envPassword)

// parsePlace takes a URL apart: user and password, and the rest.
func parsePlace(raw, from string) (*place, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Fragment != "" || u.RawQuery != "" || u.ForceQuery {
		return nil, usage("the URL in %s cannot be read; known are %s, without ? and #; percent-encode special characters of a password, or put it into %s", from, schemeForms(), envPassword)
	}
	if _, has := u.User.Password(); has && from == "--url" {
		return nil, errShown
	}
	p := &place{secret: secret{user: u.User.Username()}}
	p.secret.password, _ = u.User.Password()
	u.User = nil
	p.url = u
	for _, s := range schemes() {
		if s.name == u.Scheme {
			p.scheme = &s
		}
	}
	if p.scheme == nil {
		if u.Scheme == "" {
			return nil, usage("the URL in %s has no scheme; known are %s", from, schemeForms())
		}
		return nil, usage("unknown URL scheme %s in %s; known are %s", quote(u.Scheme), from, schemeForms())
	}
	if p.scheme.server && strings.Contains(u.EscapedPath(), "@") {
		// A password with a slash in it: what is before the slash looks like a host and a
		// port, and the rest like what follows them.
		return nil, usage("the URL in %s has an @ behind the first slash; percent-encode special characters of a password, or put it into %s; as part of a name an @ is %%40", from, envPassword)
	}
	if p.scheme.server && !portsExist(u.Host) {
		return nil, usage("the URL in %s has a port that does not exist; want a number from 1 to 65535", from)
	}
	return p, nil
}

// portsExist reports whether all ports of a list of hosts can be ones. A host may have none.
func portsExist(hosts string) bool {
	for _, h := range strings.Split(hosts, ",") {
		_, port, err := net.SplitHostPort(h)
		if err != nil || port == "" {
			continue
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	}
	return true
}

// readPassword takes the password from where it is least seen: --password-file, then
// FENCELOCK_PASSWORD, then the URL.
func (c *cli) readPassword(p *place) error {
	if c.passwordFile == "" {
		if s := os.Getenv(envPassword); s != "" {
			p.secret.password = s
		}
		return nil
	}
	b, err := os.ReadFile(c.passwordFile)
	if err != nil {
		return fail(exitConfig, "cannot read --password-file: %v", err)
	}
	// Editors end a file with a line feed that is no part of the password.
	p.secret.password = strings.TrimRight(string(b), "\r\n")
	if p.secret.password == "" {
		return fail(exitConfig, "--password-file %s is empty", quote(c.passwordFile))
	}
	return nil
}

// contactWithin bounds the first contact of one who waits for at most w. A wait that is
// shorter than a connection takes is no reason not to make one.
func contactWithin(w seconds) time.Duration {
	if !w.set || w.d == 0 {
		return firstContact
	}
	return min(max(w.d, time.Second), firstContact)
}

// connect opens p and says which name it was for if nobody answers within most. It returns
// when ctx ends, also where a client library does not hear of that.
func (p *place) connect(ctx context.Context, name string, most time.Duration) (*store, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	type answer struct {
		s   *store
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		s, err := p.scheme.open(ctx, p)
		answered <- answer{s, err}
	}()
	select {
	case a := <-answered:
		return a.s, explain(p, name, a.err)
	case <-ctx.Done():
		return nil, explain(p, name, ctx.Err())
	}
}

// silent says that nobody answered, or that who answered cannot do it now.
func (p *place) silent(name string, err error) error {
	what, next := "cannot be used now", "check that the file can be written, and "+envURL
	if p.scheme.server {
		what, next = "does not answer", "check that the server runs and can be reached, and "+envURL
	}
	if answered(err) {
		what, next = "refuses for now", "see to that there, then try again"
	}
	return fail(exitUnavailable, "%s%s %s: %s; %s", about(name), p, what, cause(err), next)
}

// refused says that asking again is useless.
func (p *place) refused(name string, err *driver.PermanentError) error {
	// The command always creates its tables, so its user has no such option to set.
	text := strings.Replace(err.Error(), "set Options.CreateTables, or ", "", 1)
	return fail(exitConfig, "%s%s: %s", about(name), p, text)
}

// deniedError says that the store did not let us in.
type deniedError struct{ given bool }

func (e deniedError) Error() string {
	if e.given {
		return "refuses the user or the password; check " + envPassword + ", --password-file or " + envURL
	}
	return "wants a password; put it into " + envPassword + ", --password-file or " + envURL
}

func about(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf("%s: ", quote(name))
}
