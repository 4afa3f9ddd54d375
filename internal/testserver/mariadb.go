package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mariadbDatabase is made at each start, and is what URL names.
const mariadbDatabase = "locks"

var mariadb = kind{
	name:    "mariadbd",
	program: "mariadbd",
	install: "on Debian run: apt-get install mariadb-server; elsewhere see https://mariadb.org/download/",
	prepare: prepareMariaDB,
	args: func(s *Server) []string {
		return []string{"--defaults-file=" + filepath.Join(s.dir, "my.cnf")}
	},
	ready: mariadbGreets,
	url:   func(s *Server) string { return s.address("mysql", "root", "/"+mariadbDatabase).String() },
	keeps: true,
	users: []string{"mysql", "nobody"},
}

// MariaDB starts a MariaDB server for a test, or MySQL where only that is installed. Its
// user is root, and it has an empty database, as URL says. Persist is always on.
var MariaDB = forTest(findMariaDB)

// StartMariaDB starts a server like that of MariaDB in a folder.
var StartMariaDB = inFolder(findMariaDB)

func findMariaDB() (kind, error) {
	k := mariadb
	if _, err := exec.LookPath(program(k.program)); err != nil {
		if _, err := exec.LookPath(program("mysqld")); err == nil {
			k.program = "mysqld"
		}
	}
	return k, nil
}

// isMySQL reports whether s is of MySQL. MariaDB has a program of the same name, too, which
// is taken only where there is no mariadbd.
func (s *Server) isMySQL() bool { return filepath.Base(s.kind.program) == "mysqld" }

// prepareMariaDB writes the configuration, and makes the system tables the first time.
// Relative paths are relative to the data: a socket's path may have 107 bytes at most.
func prepareMariaDB(s *Server) error {
	data, tmp := filepath.Join(s.dir, "data"), filepath.Join(s.dir, "tmp")
	// A server that starts clears away all temporary tables that it finds, also those of
	// one that makes its system tables just then.
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return err
	}
	lines := []string{
		"[mysqld]",
		"datadir=" + data,
		"tmpdir=" + tmp,
		"bind-address=127.0.0.1",
		fmt.Sprintf("port=%d", s.port),
		"socket=locks.sock",
		"pid-file=locks.pid",
		"init-file=" + filepath.Join(s.dir, "init.sql"),
		"skip-name-resolve",
		"skip-log-bin",
		"innodb_flush_log_at_trx_commit=2",
		"innodb_buffer_pool_size=32M",
		"performance_schema=OFF",
		"max_connections=500",
	}
	if s.isMySQL() {
		lines = append(lines, "innodb_redo_log_capacity=16M", "mysqlx=OFF", "secure_file_priv=NULL")
	} else {
		lines = append(lines, "innodb_log_file_size=8M")
	}
	if err := s.writeConfig("my.cnf", lines...); err != nil {
		return err
	}
	init := "CREATE DATABASE IF NOT EXISTS " + mariadbDatabase + ";\n"
	if s.isMySQL() { // it has made root@localhost, who cannot be told from others without names
		init += "CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';\n" +
			"GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
	}
	if s.opts.password != "" {
		quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s.opts.password)
		init += "ALTER USER 'root'@'127.0.0.1' IDENTIFIED BY '" + quoted + "';\n"
	}
	if err := os.WriteFile(filepath.Join(s.dir, "init.sql"), []byte(init), 0o600); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(data, "mysql")); err == nil {
		return nil
	}
	args := []string{"--no-defaults", "--datadir=" + data, "--tmpdir=" + tmp, "--skip-log-bin"}
	installer := program("mariadb-install-db")
	if s.isMySQL() {
		installer = s.kind.program
		args = append(args, "--initialize-insecure", "--mysqlx=OFF", "--secure-file-priv=NULL")
	} else {
		args = append(args, "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=8M")
	}
	if err := s.install(installer, args...); err != nil {
		_ = os.RemoveAll(data) // half of them would be taken for all
		return err
	}
	return nil
}

// mariadbGreets waits for the packet with which the server begins: three bytes of length,
// the number of the packet, and the protocol's version.
func mariadbGreets(ctx context.Context, s *Server) error {
	greeting, err := s.exchange(ctx, "", beginning)
	if err == nil && greeting[4] != 10 {
		err = errors.New("its greeting is not that of a MySQL server")
	}
	return err
}
