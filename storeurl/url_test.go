package storeurl

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// namesNoStore are URLs that Parse refuses, each with words of the error.
var namesNoStore = map[string]string{
	"":                                              "has no scheme",
	"ftp://h":                                       `unknown URL scheme "ftp"`,
	"reddis://h":                                    "did you mean redis://host:port/db?",
	"sqlite3:///x":                                  "did you mean sqlite:///path?",
	"postgresql+psycopg://u@h/db":                   "did you mean postgresql://user@host:port/db?",
	"jdbc:mysql://h/db":                             "did you mean mysql://user@host:port/db?",
	"host=h port=5432 dbname=d user=u":              "has keywords of libpq, not a URL; write postgres://user@host:port/db",
	"https://locks.example:7533":                    "write the URL of the store, as serve has it",
	"127.0.0.1:7001":                                "for a Redis server write redis://127.0.0.1:7001/db",
	"db.example:5432":                               "did you mean postgres://user@db.example:5432/db?",
	"localhost:2379":                                "did you mean etcd://localhost:2379/prefix?",
	"redis://h?db=x":                                "not the number of a database",
	"redis://h/1?db=2":                              "names two databases",
	"redis://h?pool_siez=1":                         "unknown parameter pool_siez",
	"redis://h?pool_size=many":                      "invalid pool_size number",
	"redis://h?ca=/x":                               "is not encrypted",
	"redis://h?skip_verify=1":                       "skip_verify has no meaning",
	"rediss://h?cert=/x":                            "belong together",
	"redis+cluster://h?db=1":                        "unknown parameter db",
	"redis+sentinel://h/m?addr=x":                   "unknown parameter addr",
	"postgres://h/db?sslmod=x":                      "unknown parameter sslmod; did you mean sslmode?",
	"postgres://h/db?a=1&a=2":                       "more than once",
	"postgres://h/db?search_path=x":                 "in another schema",
	"mysql://h/db?sql_mode=x":                       "unknown parameter sql_mode",
	"mysql://h/db?timeout=soon":                     "the parameters of the mysql URL",
	"u:s3cret@unix(run/x)/db":                       "one absolute path of a socket in socket",
	"unix://h/run/x":                                "does not name a socket; write unix:///path/redis.sock?db=0",
	"unix://u:s3cret/x@/run/x":                      "percent-encode",
	"sqlite:///srv/C#/locks.db":                     "write a # as %23, a ? as %3F and a % as %25",
	"sqlite:///srv/100%/locks.db":                   "write a # as %23",
	"rediss:///?socket=/run/x":                      "is not encrypted; write unix://",
	"mysql://h/db?socket=/run/x":                    "names a host and a socket",
	"postgres:///db":                                "for a Unix socket postgres:///db?host=/run/postgresql",
	"postgres://h/db?host=/run":                     "names its hosts twice",
	"postgres:///db?host=a,b&port=1,2,3":            "write host=a,b&port=5432,5433",
	"postgres://h/db?ssl=true":                      "the parameter ssl, which is not known here; write sslmode=verify-full",
	"postgres://h/db?currentSchema=x":               "leave it out",
	"mysql://h/db?ssl-mode=REQUIRED":                "write tls=true",
	"mysql://h/db?sslaccept=strict":                 "write tls=true",
	"rediss://h?ssl_cert_reqs=none":                 "skip_verify=true",
	"redlock:redis://a,redis://b,unix:///c":         "member 3 of the redlock URL is on this host alone",
	"s3://key:secret@locks":                         "put the key into AWS_ACCESS_KEY_ID",
	"s3:///prefix":                                  "does not begin with one bucket",
	"s3://locks?endpoint=host":                      "write endpoint=https://host:port",
	"s3://locks?poll=fast":                          "write poll=500ms",
	"s3://locks?regoin=x":                           "did you mean region?",
	"s3://locks?endpoint_url=http://h":              "the parameter endpoint_url, which is not known here; write endpoint=",
	"s3://locks?profile=prod":                       "name it in AWS_PROFILE",
	"nats://s3cret@h":                               "write a token as nats://:TOKEN@host",
	"nats://u:a@h,nats://u:s3cret@i":                "names a user or a password behind the first host",
	"nats://h?tls=true":                             "write natss://",
	"nats://h?token=s3cret":                         "write nats://:TOKEN@host",
	"redis://h?format=setnx":                        "write bridge:OLD?format=setnx,NEW",
	"bridge:redis://a,redis://b?format=setnx":       "outside of the old store of a bridge",
	"rediss://h?ssl=true":                           "write rediss://",
	"etcd://a:2379,b/p":                             "write that of the last one too",
	"zk://h?x=1":                                    "unknown parameter x; it takes none",
	"zks://h?x=1":                                   "unknown parameter x; known are ca, cert, key",
	"zk://h?ca=/x":                                  "is not encrypted",
	"a:2281":                                        "did you mean zks://a:2281/root?",
	"redis://:x?s3cret@h":                           "cannot be read",
	"redis://u:1?s3cret@h":                          "an @ behind the host",
	"redis://:s3cret@h:x":                           "cannot be read",
	"redis://h:70000":                               "a port that does not exist",
	"redis://":                                      "has no host",
	"redis://a\r\nredis://:s3cret@b":                "has more than one line",
	"export REDIS_URL=redis://:s3cret@h":            "begins with the name of a variable",
	"${REDIS_URL}":                                  "was not replaced by its value",
	"%REDIS_URL%":                                   "was not replaced by its value",
	"sqlite:///s3cret\"":                            "begins or ends with a quote",
	"\u201csqlite:///s3cret\u201d":                  "begins or ends with a quote",
	"\u200bredis://:s3cret@h":                       "has an invisible character",
	"sqlite:///s3cret\x00":                          "has an invisible character",
	"redis://a,b":                                   "or more than one",
	"redis://h/s3cret":                              "not the number of a database",
	"redis+sentinel://a":                            "does not say what the sentinels call the master",
	"redis+cluster://a/1":                           "has no databases",
	"redis+cluster://a,,b":                          "a comma too many",
	"redlock://a,b":                                 "3, 5, 7 or 9 independent servers",
	"redlock://a,b,a":                               "names one server twice",
	"redlock:redis://a,redis://b,mysql://u@c/d":     "members of a quorum are Redis servers",
	"redlock:redis://a,redis://b,sqlite:///c":       "member 3 of the redlock URL is not a Redis server",
	"redlock:redis://a,redis://,redis://c":          "member 2 of the redlock URL",
	"redlock:redis://a,redis://:s3,cret@b,redis://": "member 2 of the redlock URL cannot be read",
	"postgres://h":                                  "not the name of a database",
	"mysql://h/a/b":                                 "not the name of a database",
	"etcd://:s3cret@h/p":                            "wants a user with the password",
	"zk://u@h":                                      "wants a user and a password, or neither",
	"sqlite://locks.db":                             "an absolute path",
	"memory:x":                                      "takes nothing behind the colon",
}

func TestParseRefusesWhatNamesNoStore(t *testing.T) {
	from := Source{Name: EnvURL}
	for raw, word := range namesNoStore {
		_, err := Parse(raw, from)
		if err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v; want %q, and nothing secret", raw, err, word)
		}
	}
	if _, err := Parse("redis://:pw@h", Source{Name: "--url", Visible: true}); err == nil {
		t.Error("a password that everybody can see is taken")
	}
	for _, raw := range []string{"postgres://h/db?password=pw", "u:pw@tcp(h:3306)/db"} {
		if _, err := Parse(raw, Source{Name: "--url", Visible: true}); err == nil {
			t.Errorf("%s: a password that everybody can see is taken", raw)
		}
	}
}

func TestPasswordOfTheSourceReplacesOneInTheURL(t *testing.T) {
	for raw, want := range map[string][]string{
		"redis://h":              {"s3/cret"},
		"postgres://me:old@h/db": {"s3/cret"},
		"redlock://u:old@a,b,c":  {"s3/cret", "s3/cret", "s3/cret", "s3/cret"},
		// What was not said for one member is what was said for all.
		"redlock:redis://a,redis://:own@b,redis://c": {"s3/cret", "s3/cret", "own", "s3/cret"},
	} {
		u, err := Parse(raw, Source{Name: EnvURL, Password: "s3/cret"})
		steps.Must(t, err)
		for i, u := range append([]*URL{u}, u.Members...) {
			if u.password != want[i] {
				t.Errorf("%s: store %d of the URL has the password %q; want %q", raw, i, u.password, want[i])
			}
		}
	}
}

func TestSchemaOfALockIsNotChosenByTheEnvironment(t *testing.T) {
	for options, refused := range map[string]bool{
		"":                                false,
		"-c statement_timeout=60000":      false,
		"-c work_mem=1MB --geqo=off":      false,
		"-c search_path=elsewhere,public": true,
		"-csearch_path=x":                 true,
		"--search-path=x":                 true,
		`-c SEARCH\_PATH=x`:               true,
		"-c geqo=off -c role=x":           true,
		"--session_authorization=x":       true,
	} {
		t.Setenv("PGOPTIONS", options)
		u, err := Parse("postgres://me@h/db", Source{Name: EnvURL})
		steps.Must(t, err)
		if _, err = u.Open(t.Context(), Config{}); (err != nil) != refused {
			t.Errorf("PGOPTIONS=%s: %v; want refused: %v", options, err, refused)
		}
	}
}

func TestSchemesAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range schemes() {
		if seen[s.name] || !strings.HasPrefix(s.form, s.name+":") || s.check == nil || s.open == nil {
			t.Errorf("scheme %q is not complete, or there twice", s.name)
		}
		seen[s.name] = true
	}
}

// shown is everything of a URL that people may get to see.
func shown(u *URL, err error) string {
	if err != nil {
		return err.Error()
	}
	return strings.ToLower(fmt.Sprintf("%s %v %#v %s", u, u, u, u.denied()))
}

// FuzzURL: Parse shows nothing of the password, however badly it is written into the URL.
//
//verify:fault Security | passwords appear in no error, no report and no child process
func FuzzURL(f *testing.F) {
	for _, scheme := range Schemes() {
		f.Add(scheme+"://", "user", "pass", "", "@host:1234/db")
		f.Add(scheme+":", "", "", "", "")
		// What was not percent-encoded: a slash makes a path of what follows, and so on.
		for _, c := range []string{"/", "?", "#", "@", ":", "%", "[", " ", ",", "/x/"} {
			f.Add(scheme+"://", "user", "12", c, "@host:1234")
			f.Add(scheme+"://", "user", "12", c, "@host:1234/name")
			f.Add(scheme+"://", "user", "12", c, "@h1:1,h2:2,h3:3/name/1")
			f.Add(scheme+":", "user", "12", c, "@host:1234/0")
		}
	}
	f.Add("redlock://", "", "", "", "a,b,c/0")
	f.Add("", "user", "pass", "", "@host")
	f.Add("http://[", "", "", "", "::1]:99999999/\x7f")
	f.Setenv("XDG_STATE_HOME", f.TempDir())
	const second = "s3cond-h4lf"
	f.Fuzz(func(t *testing.T, scheme, user, first, between, rest string) {
		// The first half may look like a port; the second is to be seen nowhere.
		raw := scheme + user + ":" + first + between + second + rest
		if strings.Contains(strings.ToLower(scheme+user+rest), second) || !strings.Contains(rest, "@") {
			return
		}
		if name, _, ok := strings.Cut(scheme, ":"); !ok || strings.Trim(strings.TrimPrefix(scheme, name), ":/") != "" {
			return // the password would be what comes before the first colon, or behind it
		}
		if u, err := url.Parse(raw); err == nil && u.Scheme == "sqlite" && u.Host == "" && u.User == nil {
			return // all of it is the name of a file, which has no password and is shown
		}
		for _, from := range []Source{{Name: EnvURL}, {Name: "--url", Visible: true}} {
			u, err := Parse(raw, from)
			if text := shown(u, err); strings.Contains(strings.ToLower(text), second) {
				t.Errorf("%q: part of the password is shown: %s", raw, text)
			}
			if left := WithoutPasswords(raw); err == nil && strings.Contains(strings.ToLower(left), second) {
				t.Errorf("%q: part of the password is handed on: %s", raw, left)
			}
		}
	})
}

// FuzzURLAlone: any text at all.
func FuzzURLAlone(f *testing.F) {
	for _, s := range []string{"", ":", "//", "redis:", "etcd://,", "zk://[", "sqlite:///", "local:x", "memory:", "redlock://a,a,a", "\x00", "%", "redis://[::1]:6379/0"} {
		f.Add(s)
	}
	f.Setenv("XDG_STATE_HOME", f.TempDir())
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := Parse(raw, Source{Name: EnvURL})
		if (u == nil) == (err == nil) {
			t.Errorf("%q: a store %v, and an error %v", raw, u, err)
		}
		if err == nil && u.Remote() && u.Host == "" {
			t.Errorf("%q: a server without an address: %v", raw, u)
		}
		if err != nil && strings.ContainsFunc(err.Error(), unicode.IsControl) {
			t.Errorf("%q: the message breaks out of its line: %q", raw, err)
		}
	})
}
