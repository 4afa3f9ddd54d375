package storeurl

import (
	"fmt"
	"slices"
)

// foreign are the parameters that other programs put into a URL of the same server.
type foreign struct {
	// ignored concern the pool or the tables of that program alone. A connection is as safe and
	// as right without them.
	ignored []string
	// instead are refused: each name has what to write for it.
	instead map[string]string
}

var foreignPostgres = foreign{
	ignored: []string{
		"binary_parameters", "charset", "checkout_timeout", "connection_limit", "disable_prepared_binary_result",
		"encoding",
		"idle_timeout", "max_overflow", "pgbouncer", "pool", "pool_health_check_period", "pool_max_conn_idle_time",
		"pool_max_conn_lifetime", "pool_max_conn_lifetime_jitter", "pool_max_conns", "pool_min_conns",
		"pool_min_idle_conns", "pool_recycle", "pool_size", "pool_timeout", "prepareThreshold", "prepared_statements",
		"reaping_frequency", "schema", "serverVersion", "socket_timeout", "statement_cache_size", "supa",
		"uselibpqcompat",
	},
	instead: map[string]string{
		"currentSchema": "leave it out: the search_path that the server has for everybody decides where the locks are",
		"ssl":           "write sslmode=verify-full, or sslmode=require for a server whose certificate is not checked",
		"sslaccept":     "write sslmode=verify-full, or sslmode=require for a server whose certificate is not checked",
		"ssl_mode":      "write sslmode=",
		"ssl-mode":      "write sslmode=",
	},
}

const mysqlTLS = "write tls=true, or tls=skip-verify for a server whose certificate is not checked, or tls=false"

var foreignMySQL = foreign{
	ignored: []string{
		"allowPublicKeyRetrieval", "autoReconnect", "characterEncoding", "checkout_timeout", "connectionLimit",
		"connection_limit", "encoding", "idle_timeout", "max_overflow", "pool",
		"pool_recycle", "pool_size", "pool_timeout", "prepared_statements", "queueLimit", "reaping_frequency",
		"reconnect", "serverVersion", "socket_timeout", "statement_cache_size", "useUnicode", "waitForConnections",
		"zeroDateTimeBehavior",
	},
	instead: map[string]string{
		"connect_timeout": "write timeout=5s",
		"serverTimezone":  "leave it out: locks do not depend on it",
		"ssl":             mysqlTLS,
		"ssl-mode":        mysqlTLS,
		"ssl_mode":        mysqlTLS,
		"sslMode":         mysqlTLS,
		"sslaccept":       mysqlTLS,
		"sslmode":         mysqlTLS,
		"useSSL":          mysqlTLS,
	},
}

var foreignRedis = foreign{
	ignored: []string{"decode_responses", "family", "health_check_interval", "max_connections"},
	instead: map[string]string{
		"socket_connect_timeout": "write dial_timeout=5s",
		"socket_timeout":         "write read_timeout=5s",
		"ssl":                    "write rediss://, or redis:// for a connection that is not encrypted",
		"ssl_ca_certs":           "write ca=",
		"ssl_cert_reqs": "write rediss:// with ca=, " +
			"or with skip_verify=true for a certificate that is not checked",
		"ssl_certfile": "write cert=",
		"ssl_keyfile":  "write key=",
	},
}

const natsCreds = "write creds= with the path of a file"

var foreignNATS = foreign{instead: map[string]string{
	"creds_file":  natsCreds,
	"credentials": natsCreds,
	"jwt":         natsCreds,
	"nkey":        natsCreds,
	"tls":         "write natss://",
	"token":       "write nats://:TOKEN@host, or put the token into " + EnvPassword,
}}

const (
	s3Plain   = "write endpoint=http://host:port"
	s3Address = "write endpoint=https://host:port"
	s3Key     = "put the key into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)

var foreignS3 = foreign{
	ignored: []string{"awssdk", "force_path_style", "hostname_immutable", "s3ForcePathStyle", "use_path_style"},
	instead: map[string]string{
		"access_key_id":     s3Key,
		"aws_access_key_id": s3Key,
		"disableSSL":        s3Plain,
		"disable_https":     s3Plain,
		"endpointUrl":       s3Address,
		"endpoint_url":      s3Address,
		"profile":           "name it in AWS_PROFILE",
	},
}

// foreign takes the parameters of other programs out, or says what to write in place of one.
func (u *URL) foreign(f foreign) error {
	for name := range u.settings {
		if text := f.instead[name]; text != "" {
			return fmt.Errorf("the %s URL has the parameter %s, which is not known here; %s", u.Scheme, name, text)
		}
		if slices.Contains(f.ignored, name) {
			delete(u.settings, name)
		}
	}
	return nil
}
