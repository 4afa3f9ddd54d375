package storeurl

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/internal/clean"
)

// The environment variables that fencelock reads.
const (
	EnvURL      = "FENCELOCK_URL"
	EnvPassword = "FENCELOCK_PASSWORD"
	EnvCA       = "FENCELOCK_CA" // files in PEM form: see TLSFiles
	EnvCert     = "FENCELOCK_CERT"
	EnvKey      = "FENCELOCK_KEY"
)

// URL is a store that a URL names. Parse makes it.
type URL struct {
	Scheme  string
	Host    string // "host:port,host:port", each with its port
	Path    string // of the file, the database, the prefix, the root node; without a slash before it
	Members []*URL // of a quorum, or the old and the new store of a bridge

	scheme   *scheme
	text     string // for people
	user     string
	password string
	settings map[string]string // parameters behind a ?, without ca, cert and key
	format   string            // of another library's locks, in the old store of a bridge
	agreed   map[string]string // of them, those of a quorum: skew, quarantine, durable
	tls      TLSFiles
}

// String is the store for people: "redis 127.0.0.1:6379". It shows no user and no password.
func (u *URL) String() string { return u.text }

// GoString keeps the password out of %#v.
func (u *URL) GoString() string { return "storeurl.URL(" + u.text + ")" }

// Remote reports whether a server keeps the locks, which the network may cut off.
func (u *URL) Remote() bool { return u.scheme.server }

// TLS reports whether connections to the store are encrypted by what the URL says.
func (u *URL) TLS() bool {
	switch {
	case strings.HasPrefix(u.Scheme, "postgres"):
		mode := u.settings["sslmode"]
		return mode == "require" || strings.HasPrefix(mode, "verify") || !u.tls.empty()
	case u.Scheme == "s3":
		return !strings.HasPrefix(u.settings["endpoint"], "http:")
	case u.Scheme == "mysql" || u.Scheme == "mariadb":
		return !u.tls.empty() || u.settings["tls"] != "" && u.settings["tls"] != "false"
	}
	return u.scheme.tls
}

// Private reports whether only this process sees the locks.
func (u *URL) Private() bool { return u.scheme.private }

// Source says where a URL comes from.
type Source struct {
	// Name of the flag or the variable, for error messages.
	Name string
	// Visible: everybody on the host can see the URL, so a password in it is an error.
	Visible bool
	// Password replaces a password in the URL, if it is not empty.
	Password string
	// TLS is used where the URL names no files of its own and its scheme has TLS.
	TLS TLSFiles

	shared bool // by both stores of a bridge: a URL with a password of its own keeps it
}

// Environment is the Source of a URL whose password and TLS files the environment has.
func Environment(name string) Source {
	return Source{Name: name, Password: clean.Env(EnvPassword), TLS: TLSFiles{
		CA: clean.Env(EnvCA), Cert: clean.Env(EnvCert), Key: clean.Env(EnvKey),
	}}
}

// Open opens the store that a URL names. A password in FENCELOCK_PASSWORD and the files in
// FENCELOCK_CA, FENCELOCK_CERT and FENCELOCK_KEY complete the URL. Open does not ask whether
// a server answers: Store.Ping does.
//
// The URL is one that other programs have already: a DATABASE_URL of PostgreSQL with its
// parameters, a URL of go-redis, a DSN of go-sql-driver. See the package comment.
func Open(ctx context.Context, rawURL string) (*Store, error) {
	u, err := Parse(rawURL, Environment("the call of Open"))
	if err != nil {
		return nil, err
	}
	return u.Open(ctx, Config{MaxConns: 10})
}

// Parse reads a URL. Errors show nothing of it but the scheme and the names of parameters,
// because any other part may belong to a password. Blanks, line ends and one pair of quotes
// around the URL are not part of it.
func Parse(raw string, from Source) (*URL, error) {
	raw = clean.Value(raw)
	if what := odd(raw); what != "" {
		return nil, fmt.Errorf("the URL in %s %s", from.Name, what)
	}
	if list, ok := strings.CutPrefix(raw, bridgeScheme); ok {
		return parseBridge(list, from)
	}
	if dsn := mysqlDSN(raw); dsn != "" {
		u, err := urlOfDSN(dsn)
		if err != nil {
			return nil, fmt.Errorf("the DSN in %s cannot be read: %w; write user:password@tcp(host:port)/db",
				from.Name, err)
		}
		raw = u
	}
	u, rest, err := split(raw, from)
	if err != nil {
		return nil, err
	}
	u.takePassword(from)
	if u.Scheme == "redlock" && rest.Opaque != "" {
		if u.Members, err = parseMembers(rest.Opaque, from); err != nil {
			return nil, err
		}
		rest.Opaque = ""
	}
	if err := u.scheme.check(u, rest); err != nil {
		return nil, err
	}
	return u, nil
}

// takePassword takes the password of from. One that two stores share is not for a store that has a password of its own,
// nor for one that knows no password without a user.
func (u *URL) takePassword(from Source) {
	if from.Password == "" || from.shared && (u.password != "" || u.user == "" && u.scheme.users) {
		return
	}
	u.password = from.Password
}

// split reads what all schemes have in common: the scheme, user and password.
func split(raw string, from Source) (*URL, *url.URL, error) {
	rest, err := parseRaw(raw, from)
	if err != nil {
		return nil, nil, err
	}
	password, has := rest.User.Password()
	if has && from.Visible {
		return nil, nil, errVisible
	}
	u := &URL{
		Scheme: rest.Scheme, scheme: find(rest.Scheme),
		user: rest.User.Username(), password: password,
	}
	if u.scheme == nil {
		return nil, nil, unknownScheme(raw, u.Scheme, from)
	}
	if u.scheme.server {
		if err := checkServer(rest, from); err != nil {
			return nil, nil, err
		}
	}
	return u, rest, u.readSettings(rest.Query(), from)
}

// parseRaw reads the syntax of a URL. Parameters behind the last member of a quorum belong
// to that member.
func parseRaw(raw string, from Source) (*url.URL, error) {
	if bareAddress.MatchString(raw) {
		return nil, unknownScheme(raw, "", from)
	}
	raw, err := oneList(raw, from)
	if err != nil {
		return nil, err
	}
	rest, err := url.Parse(socketAsParameter(raw))
	if err != nil || rest.Fragment != "" || strings.Contains(raw, "#") || rest.ForceQuery {
		if strings.HasPrefix(raw, "sqlite:") {
			return nil, fmt.Errorf("the URL in %s cannot be read; in the name of a file write a # as %%23, a ? as "+
				"%%3F and a %% as %%25", from.Name)
		}
		return nil, fmt.Errorf("the URL in %s cannot be read; percent-encode special characters of a password, or "+
			"put it into %s; if a host of several has a port, write that of the last one too", from.Name, EnvPassword)
	}
	if rest.Scheme == "redlock" && rest.Opaque != "" && rest.RawQuery != "" {
		rest.Opaque, rest.RawQuery = rest.Opaque+"?"+rest.RawQuery, ""
	}
	return rest, redisSocket(rest, from)
}

// checkServer refuses addresses that cannot be meant.
func checkServer(rest *url.URL, from Source) error {
	if strings.Contains(rest.EscapedPath()+rest.RawQuery, "@") {
		// A password with a slash or a ? in it: what is before looks like a host and a port,
		// and the rest like what follows them.
		return fmt.Errorf("the URL in %s has an @ behind the host; percent-encode special characters "+
			"of a password, or put it into %s; as part of a name an @ is %%40", from.Name, EnvPassword)
	}
	if !portsExist(rest.Host) {
		return fmt.Errorf("the URL in %s has a port that does not exist; want a number from 1 to 65535", from.Name)
	}
	return nil
}

var errVisible = fmt.Errorf("a password in --url can be seen by everyone on this host; "+
	"put the URL into %s, or the password into %s or --password-file", EnvURL, EnvPassword)

// portsExist reports whether all ports of a list of hosts can be ones. A host may have none.
func portsExist(hosts string) bool {
	for h := range strings.SplitSeq(hosts, ",") {
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

// WithoutPasswords returns raw without the passwords in it, and "" if nobody can tell where
// they are.
func WithoutPasswords(raw string) string {
	raw = clean.Value(raw)
	if list, ok := strings.CutPrefix(raw, bridgeScheme); ok {
		return bridgeWithoutPasswords(list)
	}
	if dsn := mysqlDSN(raw); dsn != "" {
		u, err := urlOfDSN(dsn)
		if err != nil {
			return ""
		}
		raw = u
	}
	if !strings.Contains(raw, "@") && !strings.Contains(raw, "password") {
		return raw
	}
	u, rest, err := split(raw, Source{})
	switch {
	case err != nil:
		return ""
	case u.Scheme == "redlock" && rest.Opaque != "":
		return membersWithoutPasswords(rest.Opaque)
	case rest.Opaque != "":
		return ""
	case u.password == "" && !strings.Contains(rest.RawQuery, "password"):
		return raw
	}
	rest.User = nil
	if u.user != "" {
		rest.User = url.User(u.user)
	}
	query := rest.Query()
	maps.DeleteFunc(query, func(name string, _ []string) bool { return strings.Contains(name, "password") })
	rest.RawQuery = query.Encode()
	return rest.String()
}

// membersWithoutPasswords is WithoutPasswords for the members of a redlock URL.
func membersWithoutPasswords(list string) string {
	members := strings.Split(list, ",")
	for i, m := range members {
		if _, rest, err := split(m, Source{}); err != nil || rest.Opaque != "" {
			return ""
		}
		if members[i] = WithoutPasswords(m); members[i] == "" {
			return ""
		}
	}
	return "redlock:" + strings.Join(members, ",")
}
