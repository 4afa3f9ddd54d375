package storeurl

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// The environment variables that the programs of fencelock take URL and password from.
const (
	EnvURL      = "FENCELOCK_URL"
	EnvPassword = "FENCELOCK_PASSWORD"
)

// URL is a store that a URL names. Parse makes it.
type URL struct {
	Scheme  string
	Host    string // "host:port,host:port", each with its port
	Path    string // of the file, the database, the prefix, the root node; without a slash before it
	Members []*URL // of a quorum

	scheme   *scheme
	text     string // for people
	user     string
	password string
	settings url.Values // PostgreSQL's, such as sslmode
}

// String is the store for people: "redis 127.0.0.1:6379". It shows no user and no password.
func (u *URL) String() string { return u.text }

// GoString keeps the password out of %#v.
func (u *URL) GoString() string { return "storeurl.URL(" + u.text + ")" }

// Remote reports whether a server keeps the locks, which the network may cut off.
func (u *URL) Remote() bool { return u.scheme.server }

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
	// Settings allows PostgreSQL's settings behind a ?, such as ?sslmode=disable.
	Settings bool
}

// Parse reads a URL. Errors show nothing of it but the scheme, because any other part may
// belong to a password.
func Parse(raw string, from Source) (*URL, error) {
	u, rest, err := split(raw, from)
	if err != nil {
		return nil, err
	}
	if from.Password != "" {
		u.password = from.Password
	}
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
		user: rest.User.Username(), password: password, settings: rest.Query(),
	}
	switch {
	case rest.Scheme == "":
		return nil, nil, fmt.Errorf("the URL in %s has no scheme; known are %s", from.Name, Forms())
	case u.scheme == nil:
		return nil, nil, fmt.Errorf("unknown URL scheme %q in %s; known are %s", u.Scheme, from.Name, Forms())
	case u.scheme.server:
		return u, rest, checkServer(rest, from)
	}
	return u, rest, nil
}

// parseRaw reads the syntax of a URL. Settings behind a ? belong to PostgreSQL, or to a
// PostgreSQL member of a quorum.
func parseRaw(raw string, from Source) (*url.URL, error) {
	rest, err := url.Parse(raw)
	if err == nil && from.Settings {
		switch {
		case rest.Scheme == "redlock" && rest.Opaque != "" && rest.RawQuery != "":
			rest.Opaque, rest.RawQuery = rest.Opaque+"?"+rest.RawQuery, ""
			return rest, nil
		case strings.HasPrefix(rest.Scheme, "postgres") && rest.Fragment == "":
			return rest, nil
		}
	}
	if err != nil || rest.Fragment != "" || rest.ForceQuery || rest.RawQuery != "" {
		return nil, fmt.Errorf("the URL in %s cannot be read; known are %s, without ? and #; "+
			"percent-encode special characters of a password, or put it into %s", from.Name, Forms(), EnvPassword)
	}
	return rest, nil
}

// checkServer refuses addresses that cannot be meant.
func checkServer(rest *url.URL, from Source) error {
	if strings.Contains(rest.EscapedPath(), "@") {
		// A password with a slash in it: what is before the slash looks like a host and a
		// port, and the rest like what follows them.
		return fmt.Errorf("the URL in %s has an @ behind the first slash; percent-encode special characters "+
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
	if !strings.Contains(raw, "@") {
		return raw
	}
	u, rest, err := split(raw, Source{})
	switch {
	case err != nil:
		return ""
	case u.Scheme == "redlock" && rest.Opaque != "":
		members := strings.Split(rest.Opaque, ",")
		for i, m := range members {
			if _, rest, err := split(m, Source{}); err != nil || rest.Opaque != "" {
				return ""
			}
			if members[i] = WithoutPasswords(m); members[i] == "" {
				return ""
			}
		}
		return "redlock:" + strings.Join(members, ",")
	case rest.Opaque != "":
		return ""
	case u.password == "":
		return raw
	}
	rest.User = nil
	if u.user != "" {
		rest.User = url.User(u.user)
	}
	return rest.String()
}
