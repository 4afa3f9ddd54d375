package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
	"github.com/fencelock/fencelock/internal/terminal"
	"github.com/fencelock/fencelock/storeurl"
)

// cli is what all verbs share.
type cli struct {
	out          *terminal.Output
	url          string
	passwordFile string
	output       string
	refused      error // why no help was shown

	history       bool // --history
	writesHistory bool // the verb holds names, or ends claims
}

const rootHelp = `fencelock holds a distributed lock while a command runs. The lock excludes other
processes and machines. It is kept on a store that you already run:

  fencelock run nightly -- ./report.sh

The store is named by --url, else by FENCELOCK_URL, else by a fencelock.toml (see fencelock
config --help). The default is a file in your state directory ($XDG_STATE_HOME, else
~/.local/state), which excludes only your own processes on this host. URLs:

  local:                        the default file, without a notice about it
  sqlite:///path                a file: excludes all users of this host who can write it
  redis://host:port/db          a Redis server; rediss:// with TLS
  redis+sentinel://host:port,…/master/db
                                Redis behind sentinels, which know it by the master's name
  redis+cluster://host:port,…   a Redis Cluster; some of its nodes are enough
                                rediss+sentinel:// and rediss+cluster:// with TLS
  redlock://host:port,…/db      a majority of 3, 5, 7 or 9 independent Redis servers
  redlock:redis://user@host:port/db,rediss://host:port/db,…
                                the same, with a user, a database or TLS for each server
  bridge:OLD,NEW                two stores, while programs move from one to the other: each lock
                                is held in both; OLD with ?format= has another library's locks
  postgres://user@host:port/db  a PostgreSQL server; postgresql: is the same. PGSSLMODE,
                                PGSERVICE and the other variables of psql apply. Of several
                                hosts the one that takes writes is used
  mysql://user@host:port/db     a MySQL or MariaDB server; mariadb: is the same
  postgres:///db?host=/DIR, mysql://user@/db?socket=/PATH, unix:///PATH?db=0
                                servers on Unix sockets: PostgreSQL, MySQL, Redis
  etcd://host:port,…/prefix     etcd, and the prefix of the keys; etcds:// with TLS
  s3://bucket/prefix            a bucket of S3; ?endpoint= names another server of S3
  nats://host:port,…/bucket     NATS JetStream, and a bucket for locks only; natss:// with
                                TLS, ?creds=FILE with a file of credentials
  zk://host:port,…/root         ZooKeeper, and the node that is the root of the locks;
                                zks:// with TLS
  memory:                       this process only; for trying things out

A URL may have the parameters of its usual client: those of libpq (?sslmode=disable), of
go-redis (?dial_timeout=2s) or of go-sql-driver, whose DSN user@tcp(host:port)/db is taken
too. With TLS, ?ca=FILE&cert=FILE&key=FILE, or FENCELOCK_CA, FENCELOCK_CERT and
FENCELOCK_KEY, name files in PEM form.

The password comes from --password-file, from FENCELOCK_PASSWORD, or from the URL in
FENCELOCK_URL. Each member of a redlock: may have a password of its own. fencelock
prints no password, and the command that it runs gets none.

Data goes to stdout, messages to stderr. Exit codes: 64 usage, 69 the store does not
answer or refuses for now, 74 the output could not be written, 75 not acquired, not
free, or refused, 78 configuration (FENCELOCK_URL included); run adds its own.`

func newRoot(c *cli) *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:           "fencelock",
		Short:         "Distributed locks for the shell",
		Long:          rootHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if showVersion {
				_, err := fmt.Fprintln(c.out, buildVersion())
				return err
			}
			if len(args) > 0 {
				return unknownVerb(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	// Not cobra's own: a template of ours makes the linker keep every method of every type, 10 MB.
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "print the version")
	c.refuseHelp(root)
	root.SetOut(c.out)
	root.SetFlagErrorFunc(flagError)
	p := root.PersistentFlags()
	p.Var((*urlFlag)(&c.url), "url", "the store of the locks (default $FENCELOCK_URL)")
	p.StringVar(&c.passwordFile, "password-file", "", "read the password from this file (default $FENCELOCK_PASSWORD)")
	verbs := []*cobra.Command{
		newRun(c), newOnce(c), newAcquire(c), newRenew(c), newRelease(c), newCheck(c),
		newWait(c), newLs(c), newShow(c), newHistory(c), newWatch(c),
		newBreak(c), newMigrate(c), newServe(c), newConsole(c), newDoctor(c), newConfig(c), newBench(c), newInit(c),
		newSchema(c), newLab(c), newVersion(c),
	}
	root.AddCommand(slices.Concat(verbs, makerVerbs(c))...)
	root.SetHelpCommand(newHelp())
	c.completions(root)
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "run", "once", "acquire", "release", "break", "serve":
			c.addHistory(cmd)
		}
	}
	return root
}

// outputFlag adds -o to a verb that has data to show.
func (c *cli) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&c.output, "output", "o", "text", "text or json")
}

func (c *cli) json() (bool, error) {
	switch c.output {
	case "text":
		return false, nil
	case "json":
		return true, nil
	}
	return false, usage("-o %s: want text or json", quote(c.output))
}

// session is an open store with a client on it.
type session struct {
	*fencelock.Client
	store *store
	info  driver.Info
	open  *storeurl.Store
}

// newSession makes a client. After an error, open is still to be closed.
func (c *cli) newSession(s *store, open *storeurl.Store, o fencelock.Options) (*session, error) {
	if err := c.writeHistory(s, open.Backend, &o); err != nil {
		return nil, err
	}
	// One claim per process: there is nobody to hand on to.
	o.HandOff = 1
	o.Owner = owner()
	client, err := fencelock.New(open.Backend, &o)
	if err != nil {
		return nil, err
	}
	return &session{client, s, open.Backend.Info(), open}, nil
}

func (s *session) close() {
	closeSoon(func() {
		_ = s.Client.Close()
		s.open.Close()
	})
}

// closeSoon leaves a store. What leave does not manage in time is not worth waiting for:
// the end of this process closes all that is open.
func closeSoon(leave func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		leave()
	}()
	select {
	case <-done:
	case <-time.After(firstContact):
	}
}

// look opens the store for a verb that only looks, or breaks.
func (c *cli) look(ctx context.Context, name string) (*session, error) {
	return c.lookWithin(ctx, name, seconds{})
}

// lookWithin is look for one who waits for at most w.
func (c *cli) lookWithin(ctx context.Context, name string, w seconds) (*session, error) {
	s, err := c.findStore()
	if err != nil {
		return nil, err
	}
	if s.notice != "" {
		say("these locks are %s", s.notice)
	}
	open, err := s.connectWithin(ctx, name, w, false)
	if err != nil {
		return nil, err
	}
	return c.newSession(s, open, fencelock.Options{})
}

// owner is what others see of this process: user@host/pid.
func owner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown-host"
	}
	s := userName() + "@" + host + "/" + strconv.Itoa(os.Getpid())
	if len(s) > limit.Owner {
		s = s[len(s)-limit.Owner:]
	}
	return strings.ToValidUTF8(s, "?")
}

// checkName refuses a bad name before anything is asked of a store.
func checkName(name string) error {
	switch {
	case name == "":
		return usage("the name of the lock is empty; it may be anything of 1 to %d bytes", limit.Key)
	case len(name) > limit.Key:
		return usage("the name of the lock has %d bytes; it may have at most %d", len(name), limit.Key)
	}
	return nil
}

// oneName is what verbs on one lock take.
func oneName(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("give the name of the lock, and nothing else; there are %d arguments", len(args))
	}
	return checkName(args[0])
}
