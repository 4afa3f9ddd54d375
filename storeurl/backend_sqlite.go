package storeurl

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/fencelock/fencelock/sqllock"
)

// checkSQLite wants an absolute path: a relative one would be another lock in every
// directory.
func checkSQLite(u *URL, rest *url.URL) error {
	path := rest.Path
	if runtime.GOOS == "windows" {
		path = filepath.FromSlash(strings.TrimPrefix(path, "/")) // sqlite:///C:/…
	}
	if rest.Host != "" || rest.Opaque != "" || !filepath.IsAbs(path) || strings.HasSuffix(rest.Path, "/") {
		return errors.New("sqlite wants three slashes and an absolute path to a file, " +
			"as in sqlite:///var/lib/app/locks.db")
	}
	u.Path, u.text = path, "sqlite "+path
	return u.onlySettings()
}

// checkLocal puts the file into the user's state directory. Where there is none, it
// does not guess: two guesses would be two locks.
func checkLocal(u *URL, rest *url.URL) error {
	if err := u.nothing(rest, "; a file of your own is sqlite:///path"); err != nil {
		return err
	}
	if err := u.onlySettings(); err != nil {
		return err
	}
	dir := stateDir()
	if dir == "" {
		return badConfig("there is no home directory for the embedded default; "+
			"set HOME or XDG_STATE_HOME, or say with %s where the locks are", EnvURL)
	}
	dir = filepath.Join(dir, "fencelock")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return badConfig("cannot make the directory of the embedded default: %v; "+
			"set HOME or XDG_STATE_HOME, or %s", err, EnvURL)
	}
	u.Path = filepath.Join(dir, "locks.db")
	u.text = "sqlite " + u.Path
	return nil
}

// stateDir is the user's state directory, or "".
func stateDir() string {
	// The XDG specification says to ignore what is not absolute.
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	if dir := os.Getenv("LocalAppData"); runtime.GOOS == "windows" && filepath.IsAbs(dir) {
		return dir
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state")
	}
	return ""
}

func openSQLite(_ context.Context, u *URL, c *Config) (*Store, error) {
	if _, err := os.Stat(filepath.Dir(u.Path)); err != nil {
		return nil, badConfig("the directory of %s cannot be used: %v; make it accessible, or give another URL", u, err)
	}
	switch info, err := os.Stat(u.Path); {
	case err == nil && info.IsDir():
		return nil, badConfig("%q is a directory; name a file in it", u.Path)
	case errors.Is(err, fs.ErrNotExist) && isSymlink(u.Path):
		// SQLite would create the target, wherever whoever made the link wants it.
		return nil, badConfig("%q is a symlink to a file that does not exist; "+
			"create the file, delete the link, or give another URL", u.Path)
	}
	db, err := u.sqliteDB()
	if err != nil {
		return nil, err
	}
	return onSQL(db, sqllock.SQLite, &sqllock.Options{CreateTables: true}, c), nil
}

func (u *URL) sqliteDB() (*sql.DB, error) { return sql.Open("sqlite", sqllock.SQLiteDSN(u.Path)) }

func isSymlink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}
