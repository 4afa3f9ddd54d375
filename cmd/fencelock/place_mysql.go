package main

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock/sqllock"
)

// checkMySQL reads mysql://user@host:port/db. Complaints do not repeat what they are
// about: part of a password with a slash in it looks like a database.
func checkMySQL(p *place) error {
	host, port := p.url.Hostname(), p.url.Port()
	if host == "" || p.url.Opaque != "" {
		return usage("the %s URL has no host; write %s", p.scheme.name, p.scheme.form)
	}
	if port == "" {
		port = "3306"
	}
	db := strings.TrimPrefix(p.url.Path, "/")
	if db == "" || strings.Contains(db, "/") {
		return usage("what follows the host of the %s URL is not the name of a database; write %s, and percent-encode special characters of a password", p.scheme.name, p.scheme.form)
	}
	p.url.Host, p.url.Path = net.JoinHostPort(host, port), db
	p.text = p.scheme.name + " " + p.url.Host + "/" + db
	return nil
}

func openMySQL(ctx context.Context, p *place) (*store, error) {
	o := mysql.NewConfig()
	o.Net, o.Addr, o.DBName = "tcp", p.url.Host, p.url.Path
	o.User, o.Passwd = p.secret.user, p.secret.password
	o.Logger = noMySQLLog{}
	connector, err := mysql.NewConnector(o)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	// One process holds one lock: what it sends at once is little.
	db.SetMaxOpenConns(2)
	b := sqllock.New(db, sqllock.MySQL, &sqllock.Options{CreateTables: true})
	if _, err := b.Line(ctx, "\x00"); err != nil {
		_ = b.Close()
		_ = db.Close()
		var refused *mysql.MySQLError
		if errors.As(err, &refused) && (refused.Number == 1045 || refused.Number == 1698) {
			return nil, deniedError{given: p.secret.password != ""}
		}
		return nil, err
	}
	return &store{b, func() { _ = b.Close(); _ = db.Close() }}, nil
}

// noMySQLLog keeps the driver's own messages off the terminal: what matters comes back
// as an error.
type noMySQLLog struct{}

func (noMySQLLog) Print(...any) {}
