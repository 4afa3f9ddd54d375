package storeurl

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fencelock/fencelock/internal/driverutil"
)

// ConfigError is a fault of the environment, or of the setup of a server. Another URL, or
// asking again, is of no use.
type ConfigError struct{ text string }

func (e *ConfigError) Error() string { return e.text }

func badConfig(format string, args ...any) error {
	return &ConfigError{fmt.Sprintf(format, args...)}
}

// DeniedError says that the store did not let us in.
type DeniedError struct {
	Given  bool   // a password was given
	member string // of a quorum, or empty
	says   string // why, if it is not for the password
}

func (e *DeniedError) Error() string {
	of := ""
	if e.member != "" {
		of = "(member " + e.member + ") "
	}
	if e.says != "" {
		return of + "does not let this user in: " + e.says
	}
	if e.Given {
		return of + "refuses the user or the password; check " + EnvPassword + ", --password-file or " + EnvURL
	}
	return of + "wants a password; put it into " + EnvPassword + ", --password-file or " + EnvURL
}

func (u *URL) denied() error { return &DeniedError{Given: u.password != ""} }

// Full reports whether err says that a server has as many connections as it may have, or is starting.
// Nothing has happened, and a later call may succeed.
func Full(err error) bool {
	var byPostgres interface{ SQLState() string }
	var byMySQL *mysql.MySQLError
	switch {
	case err == nil:
		return false
	case errors.As(err, &byPostgres):
		code := byPostgres.SQLState()
		// PgBouncer refuses with 08P01, which is also the code of other errors: package sqllock knows which.
		return code == "53300" || code == "57P03" || code == "08P01" && driverutil.RefusedForNow(err)
	case errors.As(err, &byMySQL):
		return slices.Contains([]uint16{1040, 1203, 1226}, byMySQL.Number)
	}
	return strings.Contains(err.Error(), "max number of clients reached") || // Redis
		strings.Contains(err.Error(), "LOADING Redis is loading") ||
		strings.Contains(err.Error(), "maxClientCnxns") // ZooKeeper
}

// FromServer reports whether err is what a server said, so it has answered. Where that cannot be
// known it is false. Whether it refused is another question: see driver.ErrRefused.
func FromServer(err error) bool {
	var byRedis redis.Error
	var byPostgres interface{ SQLState() string }
	var byMySQL *mysql.MySQLError
	var byEtcd rpctypes.EtcdError
	return Full(err) || errors.As(err, &byRedis) || errors.As(err, &byPostgres) ||
		errors.As(err, &byMySQL) || errors.As(err, &byEtcd)
}
