//go:build unix

package storeurl

import (
	"path/filepath"
	"testing"
)

// reading is how Parse reads a URL.
type reading struct{ raw, text, host, path string }

var readings = []reading{
	{"memory:", "memory", "", ""},
	{"sqlite:///var/lib/locks.db", "sqlite /var/lib/locks.db", "", "/var/lib/locks.db"},
	{"redis://:pw@h/3", "redis h:6379/3", "h:6379", "3"},
	{"rediss://u:pw@[::1]", "rediss [::1]:6379", "[::1]:6379", "0"},
	{"redis+sentinel://a,b,c:1/locks/2", "redis+sentinel a:26379,b:26379,c:1/locks/2", "a:26379,b:26379,c:1", "locks/2"},
	{"redis+cluster://a,b:1", "redis+cluster a:6379,b:1", "a:6379,b:1", ""},
	{"redlock://a,b,c/1", "redlock a:6379,b:6379,c:6379/1", "a:6379,b:6379,c:6379", "1"},
	{
		"redlock:redis://a,rediss://u:pw@b/1,redis://c/2",
		"redlock of redis a:6379, rediss b:6379/1, redis c:6379/2", "a:6379,b:6379,c:6379", "",
	},
	{"postgres://me:pw@h/db?sslmode=verify-full&connect_timeout=3&keepalives=1&application_name=a", "postgres h:5432/db", "h:5432", "db"},
	{"redis://h?db=2&pool_size=3&dial_timeout=2s", "redis h:6379/2", "h:6379", "2"},
	{"rediss://h/1?skip_verify=true", "rediss h:6379/1", "h:6379", "1"},
	{"rediss+sentinel://a/m", "rediss+sentinel a:26379/m", "a:26379", "m/0"},
	{"rediss+cluster://a?max_retries=1", "rediss+cluster a:6379", "a:6379", ""},
	{"bridge:redis://a/1,postgres://u:pw@b/db", "bridge from redis a:6379/1 to postgres b:5432/db", "a:6379,b:5432", ""},
	{"mysql://me@h/db?parseTime=true&charset=utf8mb4,utf8&loc=Asia%2FShanghai&timeout=2s", "mysql h:3306/db", "h:3306", "db"},
	{"me:p/w?@tcp(h:1)/db?parseTime=true", "mysql h:1/db", "h:1", "db"},
	{"postgresql://me@h:1/db", "postgresql h:1/db", "h:1", "db"},
	{"mysql://me@h/db", "mysql h:3306/db", "h:3306", "db"},
	{"mariadb://me@h/db", "mariadb h:3306/db", "h:3306", "db"},
	{"postgres://me@a,b:1/db", "postgres a:5432,b:1/db", "a:5432,b:1", "db"},
	{"postgres://me@/db?host=a,b&port=1,2", "postgres a:1,b:2/db", "a:1,b:2", "db"},
	{"postgres:///db?host=/run/postgresql", "postgres /run/postgresql:5432/db", "/run/postgresql:5432", "db"},
	{"postgres://me:pw@%2Frun%2Fpg:5433/db?sslmode=disable", "postgres /run/pg:5433/db", "/run/pg:5433", "db"},
	{"postgresql://%2Frun%2Fpg/db", "postgresql /run/pg:5432/db", "/run/pg:5432", "db"},
	{"postgres://h/db?schema=public&pgbouncer=true&connection_limit=1&pool_timeout=2", "postgres h:5432/db", "h:5432", "db"},
	{"postgres://h/db?sslmode=no-verify&pool_max_conns=4&supa=base-pooler.x", "postgres h:5432/db", "h:5432", "db"},
	{"mysql://me@localhost/db?socket=/run/mysqld/mysqld.sock", "mysql /run/mysqld/mysqld.sock/db", "/run/mysqld/mysqld.sock", "db"},
	{"postgresql://h/db?serverVersion=16&charset=utf8", "postgresql h:5432/db", "h:5432", "db"},
	{"mysql://h/db?serverVersion=8.0.32&charset=utf8mb4", "mysql h:3306/db", "h:3306", "db"},
	{"mysql://h/db?allowPublicKeyRetrieval=true&useUnicode=true&characterEncoding=utf8", "mysql h:3306/db", "h:3306", "db"},
	{"redis://h?family=0", "redis h:6379", "h:6379", "0"},
	{"mysql://me@/db?unix_socket=/run/m.sock&connection_limit=5", "mysql /run/m.sock/db", "/run/m.sock", "db"},
	{"me:p/w?@unix(/run/m.sock)/db?timeout=2s", "mysql /run/m.sock/db", "/run/m.sock", "db"},
	{"unix:///run/redis.sock?db=3", "redis /run/redis.sock/3", "/run/redis.sock", "3"},
	{"redis+socket://u:pw@/run/redis.sock", "redis /run/redis.sock", "/run/redis.sock", "0"},
	{"redis://h?max_connections=3", "redis h:6379", "h:6379", "0"},
	{" \"redis://h/3\"\r\n", "redis h:6379/3", "h:6379", "3"},
	{"\ufeffredis://h/3\r\n", "redis h:6379/3", "h:6379", "3"},
	{"etcd://a,b:1/app", "etcd a:2379,b:1/app", "a:2379,b:1", "app"},
	{"nats://a,b:1/locks?creds=f", "nats a:4222,b:1/locks", "a:4222,b:1", "locks"},
	{"nats://:pw@a:1,nats://b:2/locks", "nats a:1,b:2/locks", "a:1,b:2", "locks"},
	{"natss://u:pw@a", "natss a:4222", "a:4222", ""},
	{"etcds://u:pw@a", "etcds a:2379", "a:2379", ""},
	{"s3://locks/app/?region=eu-west-1", "s3 locks/app", "locks", "app"},
	{"s3://locks?endpoint=http://127.0.0.1:9000&poll=1s", "s3 locks", "locks", ""},
	{"s3://locks?awssdk=v2&use_path_style=true&region=x", "s3 locks", "locks", ""},
	{"zk://a,b/root/below", "zk a:2181,b:2181/root/below", "a:2181,b:2181", "root/below"},
	{"zks://u:pw@a,b:1?ca=/x", "zks a:2281,b:1", "a:2281,b:1", ""},
}

func TestParseReadsEachScheme(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	seen := map[string]bool{}
	local := reading{"local:", "sqlite " + state + "/fencelock/locks.db", "", filepath.Join(state, "fencelock", "locks.db")}
	for _, c := range append(readings, local) {
		u, err := Parse(c.raw, Source{Name: EnvURL})
		if err != nil {
			t.Errorf("%s: %v", c.raw, err)
			continue
		}
		if u.String() != c.text || u.Host != c.host || u.Path != c.path {
			t.Errorf("%s is read as %q, host %q, path %q; want %+v", c.raw, u, u.Host, u.Path, c)
		}
		seen[u.Scheme] = true
	}
	for _, scheme := range Schemes() {
		if !seen[scheme] {
			t.Errorf("no URL of %s was read", scheme)
		}
	}
}
