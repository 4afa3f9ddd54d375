package storeurl

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock/sqllock"
)

// checkMySQL reads mysql://user@host:port/db with the parameters of go-sql-driver.
func checkMySQL(u *URL, rest *url.URL) error {
	if err := u.foreign(foreignMySQL); err != nil {
		return err
	}
	socket, err := u.socket(rest, "socket", "unix_socket", "socketPath")
	if err == nil && !socket {
		err = u.host(rest, "3306")
	}
	if err == nil {
		err = u.database(rest)
	}
	if err != nil {
		return err
	}
	o, err := u.mysqlSettings()
	if err != nil {
		return err
	}
	for name := range o.Params { // the driver would set a variable of the session
		return fmt.Errorf("the %s URL has an unknown parameter %s; "+
			"the known ones are those of go-sql-driver/mysql, and %s", u.Scheme, name, strings.Join(tlsNames, ", "))
	}
	return nil
}

// dsn is how go-sql-driver/mysql writes an address, with or without a scheme before it.
var dsn = regexp.MustCompile(`^(?:(?:mysql|mariadb)://)?((?:.*@)?(?:tcp|unix)\([^()]*\)/.*)$`)

// mysqlDSN returns the DSN of go-sql-driver/mysql that raw is, or "".
func mysqlDSN(raw string) string {
	if m := dsn.FindStringSubmatch(raw); m != nil {
		return m[1]
	}
	return ""
}

// urlOfDSN writes a DSN as a URL.
func urlOfDSN(dsn string) (string, error) {
	o, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", errors.New("go-sql-driver/mysql does not understand it")
	}
	u := url.URL{Scheme: "mysql", Host: o.Addr, Path: "/" + o.DBName}
	if o.User != "" {
		u.User = url.User(o.User)
	}
	if o.Passwd != "" {
		u.User = url.UserPassword(o.User, o.Passwd)
	}
	_, u.RawQuery, _ = strings.Cut(dsn[strings.LastIndex(dsn, ")/"):], "?")
	if o.Net == "unix" {
		u.Host = ""
		u.RawQuery = strings.TrimSuffix("socket="+url.QueryEscape(o.Addr)+"&"+u.RawQuery, "&")
	}
	return u.String(), nil
}

// mysqlSettings has the parameters of the URL.
func (u *URL) mysqlSettings() (*mysql.Config, error) {
	var pairs []string
	for name, value := range u.settings {
		pairs = append(pairs, name+"="+strings.ReplaceAll(url.QueryEscape(value), "%2C", ","))
	}
	o, err := mysql.ParseDSN("tcp(h)/db?" + strings.Join(pairs, "&"))
	if err != nil {
		return nil, fmt.Errorf("the parameters of the %s URL: %w", u.Scheme, err)
	}
	return o, nil
}

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
	o, err := u.mysqlSettings()
	if err != nil {
		return nil, err
	}
	o.Net, o.Addr, o.DBName = "tcp", u.Host, u.Path
	if u.onSocket() {
		o.Net = "unix"
	}
	o.User, o.Passwd = u.user, u.password
	o.Logger = noMySQLLog{}
	if !u.tls.empty() {
		if o.TLS, err = u.tlsConfig(); err != nil {
			return nil, err
		}
		o.TLS.ServerName = u.hostname()
	}
	c, err := mysql.NewConnector(o)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(newConnector(c)), nil
}

// noMySQLLog keeps the driver's own messages off the terminal: what matters comes back
// as an error.
type noMySQLLog struct{}

func (noMySQLLog) Print(...any) {}
