package storeurl

import (
	"context"
	"database/sql"
	"errors"
	"net/url"

	"github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock/sqllock"
)

// checkMySQL reads mysql://user@host:port/db.
func checkMySQL(u *URL, rest *url.URL) error { return u.database(rest, "3306") }

func openMySQL(_ context.Context, u *URL, c *Config) (*Store, error) {
	db, err := u.mysqlDB()
	if err != nil {
		return nil, err
	}
	s := onSQL(db, sqllock.MySQL, &sqllock.Options{CreateTables: true}, c)
	read := s.ping
	s.ping = func(ctx context.Context) error {
		err := read(ctx)
		var refused *mysql.MySQLError
		if errors.As(err, &refused) && (refused.Number == 1045 || refused.Number == 1698) {
			return u.denied()
		}
		return err
	}
	return s, nil
}

func (u *URL) mysqlDB() (*sql.DB, error) {
	o := mysql.NewConfig()
	o.Net, o.Addr, o.DBName = "tcp", u.Host, u.Path
	o.User, o.Passwd = u.user, u.password
	o.Logger = noMySQLLog{}
	connector, err := mysql.NewConnector(o)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// noMySQLLog keeps the driver's own messages off the terminal: what matters comes back
// as an error.
type noMySQLLog struct{}

func (noMySQLLog) Print(...any) {}
