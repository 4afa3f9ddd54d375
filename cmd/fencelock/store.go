package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/internal/clean"
	"github.com/fencelock/fencelock/storeurl"
)

const (
	envURL      = storeurl.EnvURL
	envPassword = storeurl.EnvPassword
)

// firstContact bounds how long a server may take to answer for the first time.
// After that the library carries outages.
const firstContact = 5 * time.Second

// nowaitContact bounds how long -n asks for the lock at a store that gives no answer, or
// refuses every call.
const nowaitContact = 2 * time.Second

// store is where the locks are kept.
type store struct {
	*storeurl.URL
	source string // the flag, the variable or the file that named it
	file   configFile
	byFlag string // the URL of --url, or ""
	notice string // what the embedded default excludes, or ""

	// conns are the connections to a database server that a verb needs at the same time. Commands that
	// wait have one each, because many wait at the same time, and the server has 100 by default.
	conns    int
	examined bool // connect also returns a store that refuses calls: doctor says why
}

// findStore settles where the locks are: --url, then FENCELOCK_URL, then a config file, then
// the embedded default, unless a fencelock around this one kept the URL back.
func (c *cli) findStore() (*store, error) {
	var file configFile
	raw, from := c.url, storeurl.Source{Name: "--url", Visible: true}
	if raw == "" {
		raw, from = clean.Env(envURL), storeurl.Source{Name: envURL}
		if raw == "" && os.Getenv(envURL) != "" {
			// The locks of the default would exclude nobody on other hosts.
			return nil, fail(exitConfig, "%s has nothing but blanks or quotes in it; unset it for the "+
				"locks of this host", envURL)
		}
		if err := c.checkWithheld(raw); err != nil {
			return nil, err
		}
	}
	if raw == "" {
		var err error
		if file, err = findConfig(); err != nil {
			return nil, err
		}
		raw, from.Name = file.URL, file.path
	}
	tls := storeurl.Environment("").TLS
	from.TLS = storeurl.TLSFiles{
		CA: cmp.Or(tls.CA, file.CA), Cert: cmp.Or(tls.Cert, file.Cert), Key: cmp.Or(tls.Key, file.Key),
	}
	chosen := raw != ""
	if !chosen {
		raw, from.Name = "local:", "the default"
	}
	var err error
	if from.Password, err = c.password(file); err != nil {
		return nil, err
	}
	u, err := storeurl.Parse(raw, from)
	switch {
	case errors.As(err, new(*storeurl.ConfigError)):
		return nil, fail(exitConfig, "%s", err)
	case err != nil:
		return nil, unusable(usage("%s", err), from.Name)
	}
	s := &store{URL: u, source: from.Name, byFlag: c.url, file: file}
	if !chosen {
		s.notice = defaultNotice(u)
	}
	return s, nil
}

// unusable is the end of a verb that cannot use the URL in source: a URL on the command
// line is its user's mistake, and one in the environment or a file a bad configuration.
func unusable(err error, source string) error {
	var own *failure
	if source != "--url" && errors.As(err, &own) && own.code == exitUsage {
		return &failure{code: exitConfig, text: own.text}
	}
	return err
}

// password is what --password-file, FENCELOCK_PASSWORD or the password_file of a config
// file says, where a password is seen least. It replaces one in the URL.
func (c *cli) password(f configFile) (string, error) {
	path, named := c.passwordFile, "--password-file"
	if path == "" {
		if password := clean.Env(envPassword); password != "" || f.PasswordFile == "" {
			return password, nil
		}
		path, named = f.PasswordFile, "password_file in "+f.path
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fail(exitConfig, "cannot read %s: %v", named, err)
	}
	password := clean.Value(clean.Text(b))
	if password == "" {
		return "", fail(exitConfig, "%s: %s is empty", named, quote(path))
	}
	return password, nil
}

// defaultNotice warns that the embedded default excludes less than one may think.
func defaultNotice(u *storeurl.URL) string {
	where := "in a file that only processes of user " + userName() + " on this host see (" + u.Path + ")"
	if inContainer() {
		where += ", and no other container"
	}
	return fmt.Sprintf("%s; %s names a store for several hosts, and --url local: hides this line", where, envURL)
}

func userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}

func inContainer() bool {
	for _, f := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(f); err == nil {
			return true
		}
	}
	return os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// connectWithin is connect for one who waits for at most w, or without w for as long as it takes if
// wait says so: until then it tries again. A wait that is shorter than a connection takes is no
// reason not to make one. Without w a store that does not answer is asked once: a store that was
// never there is more likely a wrong URL than an outage. A server that is full is there.
func (s *store) connectWithin(ctx context.Context, name string, w seconds, wait bool) (*storeurl.Store, error) {
	switch {
	case w.set && w.d > 0:
		return s.connectUntil(ctx, name, time.Now().Add(max(w.d, time.Second)))
	case !w.set && wait:
		return s.connectWhileFull(ctx, name)
	}
	return s.connect(ctx, name, firstContact)
}

// over is the end of a wait for a first contact. A server that was full until then is no outage.
func (f *failure) over(name string) error {
	if !f.full {
		return f
	}
	return &failure{code: exitNotAcquired, text: fmt.Sprintf("%s was not acquired: %s; or wait longer with -w",
		quote(name), strings.TrimPrefix(f.text, about(name)))}
}

// connect opens s and asks it once, for at most that long. It returns when ctx ends, even
// if a client library ignores ctx. name is the lock that it is for.
func (s *store) connect(ctx context.Context, name string, most time.Duration) (*storeurl.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	type result struct {
		open *storeurl.Store
		err  error
	}
	done := make(chan result, 1)
	go func() {
		open, err := s.Open(ctx, storeurl.Config{MaxConns: cmp.Or(s.conns, 1)})
		if err == nil {
			err = open.Ping(ctx)
			if s.examined && refuses(err) {
				err = nil
			}
			if err != nil {
				open.Close()
			}
		}
		done <- result{open, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, explain(s, name, r.err)
		}
		return r.open, nil
	case <-ctx.Done():
		return nil, explain(s, name, ctx.Err())
	}
}

// refuses reports whether err is what a store says that can be examined.
func refuses(err error) bool {
	return errors.Is(err, driver.ErrPermanent) ||
		storeurl.FromServer(err) && !errors.As(err, new(*storeurl.DeniedError))
}

// warn says which setting of the store endangers locks.
func (s *store) warn(ctx context.Context, open *storeurl.Store) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if text := open.Warning(ctx); text != "" {
		say("warning: %s: %s", s, text)
	}
}

// silent says that the store did not answer, or that it answered and cannot do it now. Package
// driver decides which: see driver.ErrRefused.
func (s *store) silent(name string, err error) error {
	what, next := "cannot be used now", "check that the file can be written, and "+s.source
	if s.Remote() {
		what, next = "does not answer", "check that the server runs and can be reached, and "+s.source
		if s.TLS() {
			next += ", and that it speaks TLS on this port"
		}
	}
	switch {
	case errors.Is(err, driver.ErrRefused), storeurl.Full(err):
		what, next = "refuses for now", "nothing happened; solve that, then try again"
		if s.Remote() {
			next = "nothing happened; solve that on the server, then try again"
		}
	case storeurl.FromServer(err):
		what, next = "answers with an error", "solve that on the server, then try again"
	}
	if errors.As(err, new(*ballot.QuarantineError)) {
		what, next = "grants no lock yet", "or wait"
	}
	return &failure{
		code: exitUnavailable, full: storeurl.Full(err),
		text: fmt.Sprintf("%s%s %s: %s; %s", about(name), s, what, cause(err), next),
	}
}

// refused says that asking again is useless.
func (s *store) refused(name string, err error) error {
	// The command always creates its tables, so its user has no such option to set.
	text := strings.Replace(cause(err), "set Options.CreateTables, or ", "", 1)
	return fail(exitConfig, "%s%s: %s", about(name), s, text)
}

func about(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf("%s: ", quote(name))
}
