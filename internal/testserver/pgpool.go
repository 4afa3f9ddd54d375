package testserver

import (
	"fmt"
	"path/filepath"
)

// Pgpool starts a Pgpool-II in front of a primary and its standby for a test. It sends reads to the
// standby, and lets everybody in. It needs trust at the servers.
func Pgpool(tb TB, primary, standby *Server, opts ...Option) *Server {
	tb.Helper()
	return forTest(always(pgpool(primary, standby)))(tb, opts...)
}

func pgpool(primary, standby *Server) kind {
	return kind{
		name:    "pgpool",
		program: "pgpool",
		install: "on Debian run: apt-get install pgpool2; elsewhere see https://www.pgpool.net/",
		prepare: func(s *Server) error {
			return s.writeConfig("pgpool.conf",
				"backend_clustering_mode = 'streaming_replication'",
				"listen_addresses = '127.0.0.1'",
				fmt.Sprintf("port = %d", s.port),
				"pcp_listen_addresses = ''",
				fmt.Sprintf("pcp_port = %d", s.port), // not listened on
				fmt.Sprintf("socket_dir = '%s'", s.dir),
				fmt.Sprintf("pcp_socket_dir = '%s'", s.dir),
				"backend_hostname0 = '127.0.0.1'",
				fmt.Sprintf("backend_port0 = %d", primary.port),
				"backend_weight0 = 0",
				"backend_hostname1 = '127.0.0.1'",
				fmt.Sprintf("backend_port1 = %d", standby.port),
				"backend_weight1 = 1",
				"load_balance_mode = on",
				"delay_threshold = 0",
				"sr_check_period = 0",
				"sr_check_user = '"+postgresUser+"'",
				"health_check_period = 0",
				"failover_on_backend_error = off",
				"enable_pool_hba = off",
				"allow_clear_text_frontend_auth = off",
				"num_init_children = 24",
				"max_pool = 1",
				fmt.Sprintf("pid_file_name = '%s'", filepath.Join(s.dir, "pgpool.pid")),
				fmt.Sprintf("logdir = '%s'", s.dir),
				fmt.Sprintf("memqcache_oiddir = '%s'", s.dir),
			)
		},
		args: func(s *Server) []string {
			file := func(name string) string { return filepath.Join(s.dir, name) }
			return []string{"-n", "-f", file("pgpool.conf"), "-a", file("pool_hba.conf"), "-F", file("pcp.conf")}
		},
		ready: postgresAnswers,
		url:   postgresURL,
		users: []string{"postgres", "nobody"},
	}
}
