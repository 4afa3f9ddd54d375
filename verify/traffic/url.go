package traffic

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// PasswordVariable is the environment variable that holds a password, which a URL on a
// command line would show to everyone. It goes before one in the URL.
const PasswordVariable = "FENCELOCK_PASSWORD"

// form is how the URLs of a scheme are written.
type form struct {
	text string
	port string // by default; empty where there is no server
	path int    // how many parts the path may have, and
	must int    // how many it must have
}

// forms are the schemes of the command fencelock.
var forms = map[string]form{
	"local":          {text: "local:"},
	"memory":         {text: "memory:"},
	"sqlite":         {text: "sqlite:///path"},
	"redis":          {"redis://host:port/db", "6379", 1, 0},
	"rediss":         {"rediss://host:port/db", "6379", 1, 0},
	"redis+sentinel": {"redis+sentinel://host:port,host:port/master-name/db", "26379", 2, 1},
	"redis+cluster":  {"redis+cluster://host:port,host:port", "6379", 0, 0},
	"redlock":        {"redlock://host:port,host:port,host:port/db, or redlock:redis://host:port/db,postgres://user@host:port/db,…", "6379", 1, 0},
	"postgres":       {"postgres://user@host:port/db", "5432", 1, 1},
	"postgresql":     {"postgresql://user@host:port/db", "5432", 1, 1},
	"mysql":          {"mysql://user@host:port/db", "3306", 1, 1},
	"mariadb":        {"mariadb://user@host:port/db", "3306", 1, 1},
	"etcd":           {"etcd://host:port,host:port/prefix", "2379", 9, 0},
	"etcds":          {"etcds://host:port,host:port/prefix", "2379", 9, 0},
	"zk":             {"zk://host:port,host:port/root", "2181", 9, 0},
}

// several are the schemes that name more than one server.
var several = []string{"redis+sentinel", "redis+cluster", "redlock", "etcd", "etcds", "zk"}

// members are the schemes that a quorum may be made of.
var members = []string{"redis", "rediss", "postgres", "postgresql"}

// URLs are the schemes that ParseURL knows, in order.
func URLs() []string {
	var names []string
	for name := range forms {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ParseURL reads a URL as the command fencelock takes it, and for PostgreSQL with settings
// such as ?sslmode=disable, which the command takes from the environment. It returns it
// with what it left out: ports, a password from PasswordVariable, the file of local:. Errors show no part of
// it but the scheme, for any other may be a password.
func ParseURL(raw string) (*url.URL, error) { return parseURL(raw, os.Getenv(PasswordVariable)) }

func parseURL(raw, secret string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err == nil && u.Scheme == "redlock" && u.Opaque != "" && u.RawQuery != "" {
		u.Opaque, u.RawQuery = u.Opaque+"?"+u.RawQuery, "" // of one of its members
	}
	settings := err == nil && strings.HasPrefix(u.Scheme, "postgres")
	if err != nil || u.Fragment != "" || u.ForceQuery || u.RawQuery != "" && !settings {
		return nil, fmt.Errorf("the URL cannot be read; known are %s, without #, and without ? but for PostgreSQL's settings", strings.Join(URLs(), ", "))
	}
	f, known := forms[u.Scheme]
	if !known {
		return nil, fmt.Errorf("no store has the URL scheme %q; known are %s", u.Scheme, strings.Join(URLs(), ", "))
	}
	wrong := func(what string) error { return fmt.Errorf("the %s URL %s; write %s", u.Scheme, what, f.text) }
	switch u.Scheme {
	case "memory", "local":
		if u.Opaque != "" || u.Host != "" || u.Path != "" {
			return nil, wrong("says more than that")
		}
		if u.Scheme == "local" {
			u.Path, err = localFile()
		}
		return u, err
	case "sqlite":
		if u.Host != "" || u.Opaque != "" || !filepath.IsAbs(File(u)) || strings.HasSuffix(u.Path, "/") {
			return nil, wrong("has no absolute path to a file")
		}
		return u, nil
	}
	if secret != "" {
		u.User = url.UserPassword(u.User.Username(), secret)
	}
	if u.Scheme == "redlock" && u.Opaque != "" {
		return u, parseMembers(u)
	}
	var hosts []string
	for _, h := range strings.Split(u.Host, ",") {
		host, port, err := net.SplitHostPort(h)
		if err != nil {
			host, port = strings.Trim(h, "[]"), f.port
		}
		if host == "" || port == "" {
			return nil, wrong("has no host, or a comma too many")
		}
		hosts = append(hosts, net.JoinHostPort(host, port))
	}
	switch {
	case len(hosts) > 1 && !slices.Contains(several, u.Scheme):
		return nil, wrong("names several servers")
	case u.Scheme == "redlock" && (len(hosts) < 3 || len(hosts)%2 == 0):
		return nil, wrong("does not name 3, 5, 7 or 9 servers")
	}
	u.Host = strings.Join(hosts, ",")
	parts := Parts(u)
	if len(parts) < f.must || len(parts) > f.path {
		return nil, wrong("has too little or too much behind the hosts")
	}
	if strings.HasPrefix(u.Scheme, "red") && len(parts) > f.must {
		if n, err := strconv.Atoi(parts[f.must]); err != nil || n < 0 {
			return nil, wrong("does not end with the number of a database")
		}
	}
	return u, nil
}

// parseMembers reads the members of a quorum that are written out, and puts them back
// as ParseURL returns them.
func parseMembers(u *url.URL) error {
	var all []string
	for i, raw := range strings.Split(u.Opaque, ",") {
		m, err := parseURL(raw, "")
		if err != nil {
			return fmt.Errorf("member %d of the redlock URL: %w", i+1, err)
		}
		if !slices.Contains(members, m.Scheme) {
			return fmt.Errorf("member %d of the redlock URL cannot be one of a quorum; write %s", i+1, forms["redlock"].text)
		}
		all = append(all, m.String())
	}
	if len(all) < 3 || len(all)%2 == 0 {
		return fmt.Errorf("the redlock URL does not name 3, 5, 7 or 9 servers; write %s", forms["redlock"].text)
	}
	u.Opaque = strings.Join(all, ",")
	return nil
}

// Parts are those of the path of a URL.
func Parts(u *url.URL) []string {
	path := strings.Trim(u.Path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// part is one of them, or nothing.
func part(u *url.URL, i int) string {
	if parts := Parts(u); i < len(parts) {
		return parts[i]
	}
	return ""
}

// database is the number of a Redis database that follows i parts of the path.
func database(u *url.URL, i int) int {
	n, _ := strconv.Atoi(part(u, i))
	return n
}

// File is the path of the file that sqlite: and local: name.
func File(u *url.URL) string {
	if runtime.GOOS == "windows" && u.Scheme == "sqlite" {
		return filepath.FromSlash(strings.TrimPrefix(u.Path, "/")) // sqlite:///C:/…
	}
	return u.Path
}

// localFile is where the command fencelock keeps its locks if it is not told.
func localFile() (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	switch {
	case filepath.IsAbs(dir):
	case runtime.GOOS == "windows" && filepath.IsAbs(os.Getenv("LocalAppData")):
		dir = os.Getenv("LocalAppData")
	case filepath.IsAbs(os.Getenv("HOME")):
		dir = filepath.Join(os.Getenv("HOME"), ".local", "state")
	default:
		return "", fmt.Errorf("local: has no place here: set HOME or XDG_STATE_HOME")
	}
	dir = filepath.Join(dir, "fencelock")
	return filepath.Join(dir, "locks.db"), os.MkdirAll(dir, 0o700)
}
