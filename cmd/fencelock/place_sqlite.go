package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/fencelock/fencelock/sqllock"
)

// checkSQLite wants an absolute path: a relative one would be another lock in every
// directory.
func checkSQLite(p *place) error {
	path := p.url.Path
	if runtime.GOOS == "windows" {
		path = filepath.FromSlash(strings.TrimPrefix(path, "/")) // sqlite:///C:/…
	}
	if p.url.Host != "" || p.url.Opaque != "" || !filepath.IsAbs(path) || strings.HasSuffix(p.url.Path, "/") {
		return usage("sqlite wants three slashes and an absolute path to a file, as in sqlite:///var/lib/app/locks.db")
	}
	p.url.Path = path
	p.text = "sqlite " + path
	return nil
}

func openSQLite(ctx context.Context, p *place) (*store, error) {
	path := p.url.Path
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return nil, fail(exitConfig, "the directory of %s cannot be used: %v; make it, or change %s", p, err, envURL)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, fail(exitConfig, "%s is a directory; name a file in it", quote(path))
	}
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(path))
	if err != nil {
		return nil, err
	}
	// One process holds one lock: more connections would only compete.
	db.SetMaxOpenConns(2)
	b := sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true})
	if _, err := b.Line(ctx, "\x00"); err != nil {
		_ = b.Close()
		_ = db.Close()
		return nil, err
	}
	return &store{b, func() { _ = b.Close(); _ = db.Close() }}, nil
}
