package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/httplock"
	"github.com/fencelock/fencelock/internal/terminal"
)

const serveHelp = `serve answers for the locks of a store over HTTP, so that programs in any language take
part. It keeps no state: run as many as you like, behind any balancer, on one store.

  fencelock serve                                             # this host, everybody on it
  fencelock serve --listen :7533 --tls-cert c.pem --tls-key k.pem --tokens tokens

  curl -H 'Content-Type: application/json' -d '{"key":"nightly","wait":"1m"}' \
    http://127.0.0.1:7533/v1/acquire

On a loopback address it wants no token, and everybody on this host may use it. On any
other address it wants --tokens, and TLS or --insecure-behind-proxy. A line of the tokens
file says who may do what to which keys; fencelock serve token NAME makes one:

  ci  sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8  acquire,look  ci/,deploy

The verbs, each for the keys that begin with one of the prefixes; * stands for all keys:

  acquire  acquire, renew, check and release locks, run slots of once, leave a line
  look     read lines, events and metrics, with the owners and notes of others; the console
  break    end the lock of any other client, by the API and the console
  all      the three of them

With --client-ca, the CN
or a DNS name of a client's certificate stands for the name of a line, whose hash may then be
"-". SIGHUP reads the tokens and the certificate again.

On SIGTERM it ends the waiting of its clients with a hint to come again, at another server of
the same store; they keep their places in line. ZooKeeper and a quorum cannot pass locks from
one process to another: there the server that granted a lock keeps it, and the others send
its clients to its --advertise address, if it is one of their --peer addresses.

A browser shows the locks at the root of the server (docs/console.md).

The routes are in /v1/openapi.json and in docs/http.md. An audit log, one JSON object per
change, goes to stdout, or to --audit FILE.`

// serveFlags are those of serve.
type serveFlags struct {
	listen           string
	cert, key, ca    string
	tokens           string
	behindProxy      bool
	hosts, origins   []string
	advertise        string
	peers            []string
	audit            string
	drain            seconds
	maxWait, maxHold int
}

func newServe(c *cli) *cobra.Command {
	f := &serveFlags{drain: seconds{d: 10 * time.Second}}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the locks over HTTP, for programs in any language",
		Long:  serveHelp,
		Args:  noArguments("serve"),
		RunE: func(*cobra.Command, []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return c.serve(f)
		},
	}
	p := cmd.Flags()
	p.StringVar(&f.listen, "listen", "127.0.0.1:7533", "address to listen on")
	p.StringVar(&f.cert, "tls-cert", "", "file with the certificate and its chain, in PEM form")
	p.StringVar(&f.key, "tls-key", "", "file with its key")
	p.StringVar(&f.ca, "client-ca", "", "file with the authority of client certificates")
	p.StringVar(&f.tokens, "tokens", "", "file that says who may do what")
	p.BoolVar(&f.behindProxy, "insecure-behind-proxy", false, "serve without TLS: a proxy in front of it has TLS")
	p.StringArrayVar(&f.hosts, "host", nil, "a name that clients call this server by; may be repeated")
	p.StringArrayVar(&f.origins, "allow-origin", nil, "a web origin whose scripts may use it; may be repeated")
	p.StringVar(&f.advertise, "advertise", "", "URL of this server, for stores that cannot pass locks on")
	p.StringArrayVar(&f.peers, "peer", nil, "URL of another server with an --advertise; may be repeated")
	p.StringVar(&f.audit, "audit", "-", "append the audit log to this file; - is stdout")
	p.Var(&f.drain, "drain", "how long SIGTERM lets clients go on")
	p.IntVar(&f.maxWait, "max-waiting", 1000, "how many claims of one principal may wait here")
	p.IntVar(&f.maxHold, "max-held", 1000, "how many locks one principal may hold through this server")
	cmd.AddCommand(newServeToken(c))
	return cmd
}

// noArguments is for verbs that take none.
func noArguments(verb string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("%s takes no arguments, and %s is one", verb, quote(args[0]))
		}
		return nil
	}
}

func newServeToken(c *cli) *cobra.Command {
	var allow, prefix string
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a token for serve, and its line for the tokens file",
		Long: `token draws a token and prints its line for the tokens file to stdout, and the token
itself to stderr, once: nobody can find it out later. Without options the line allows acquire
for the keys that begin with NAME and a slash. fencelock help serve explains the verbs.

  fencelock serve token ci >>tokens                                 # acquire on ci/
  fencelock serve token ops --allow look,break --prefix ci/,deploy >>tokens
  fencelock serve token root --allow all --prefix '*' >>tokens`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" || strings.ContainsAny(args[0], " \t\r\n#") {
				return usage("give one name without spaces: whose token it is")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			token, line := httplock.NewToken(args[0])
			f := strings.Fields(line)
			line = strings.Join([]string{f[0], f[1], cmp.Or(allow, f[2]), cmp.Or(prefix, f[3])}, "  ")
			if _, err := httplock.ReadTokens(strings.NewReader(line)); err != nil {
				return usage("--allow and --prefix are lists with commas and without spaces: %v", err)
			}
			if _, err := fmt.Fprintln(c.out, line); err != nil {
				return err
			}
			say("the token of %s, shown this once: %s", quote(args[0]), token)
			return nil
		},
	}
	cmd.Flags().StringVar(&allow, "allow", "", "verbs, with commas: acquire, look, break or all (default acquire)")
	cmd.Flags().StringVar(&prefix, "prefix", "", "prefixes of keys, with commas; * stands for all (default NAME/)")
	return cmd
}

// check refuses what would be served to more people than its user may think.
func (f *serveFlags) check() error {
	host, _, err := net.SplitHostPort(f.listen)
	tls := f.cert != "" && f.key != ""
	switch {
	case err != nil:
		return usage("--listen %s: want an address such as 127.0.0.1:7533 or :7533", quote(f.listen))
	case (f.cert == "") != (f.key == ""):
		return usage("--tls-cert and --tls-key go together; one is missing")
	case f.ca != "" && !tls:
		return usage("--client-ca needs TLS; add --tls-cert and --tls-key")
	case f.ca != "" && f.tokens == "":
		return usage("--client-ca says who a client is; add --tokens, which says what it may do")
	case f.maxWait < 1 || f.maxHold < 1:
		return usage("--max-waiting and --max-held must be positive")
	case isLoopback(host):
		return nil
	case f.tokens == "":
		return usage("--listen %s is for other machines; add --tokens, or listen on 127.0.0.1", quote(f.listen))
	case !tls && !f.behindProxy:
		return usage("--listen %s would send tokens in the clear; add --tls-cert and --tls-key, or "+
			"--insecure-behind-proxy if a proxy on this network has TLS", quote(f.listen))
	}
	return nil
}

// isLoopback reports whether only this host reaches host.
func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// servedGCPercent makes a server collect garbage twice as often as Go does by itself. Most of its
// memory are clients that wait: each of 5000 takes 38 to 40 kB with it, and 42 without
// (go run ./cmd/bench -case service). GOGC in the environment counts instead.
const servedGCPercent = 50

func (c *cli) serve(f *serveFlags) error {
	secrets, err := f.readSecrets()
	if err != nil {
		return err
	}
	audit, err := f.openAudit(c.out)
	if err != nil {
		return err
	}
	s, err := c.openToServe()
	if err != nil {
		return err
	}
	locks, err := httplock.New(s.Client, f.options(s.store.String(), secrets, audit))
	if err != nil {
		s.close()
		return usage("%s", strings.TrimPrefix(err.Error(), "httplock: "))
	}
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		s.close()
		return fail(exitConfig, "--listen %s: %v", quote(f.listen), err)
	}
	server := locks.HTTPServer()
	server.ErrorLog = log.New(os.Stderr, "fencelock: ", 0)
	server.TLSConfig = secrets.config()
	scheme := "http"
	if server.TLSConfig != nil {
		scheme = "https"
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(servedGCPercent)
	}
	say("serving %s at %s://%s", s.store, scheme, l.Addr())
	return serveUntilSignal(server, l, locks, s, secrets, f.drain.d)
}

func (f *serveFlags) options(store string, secrets *secrets, audit *slog.Logger) *httplock.Options {
	host, _, _ := net.SplitHostPort(f.listen)
	return &httplock.Options{
		Tokens: secrets.tokens, Hosts: append(f.hosts, host), Origins: f.origins,
		Advertise: f.advertise, Peers: f.peers, MaxWaiting: f.maxWait, MaxHeld: f.maxHold, Audit: audit,
		Store: store,
	}
}

// placeKept is how long a claim that waits keeps its place when its client has gone, or its
// server. Those who have not gone come again sooner.
const placeKept = 5 * time.Second

// openToServe opens the store for others.
func (c *cli) openToServe() (*session, error) {
	where, err := c.findStore()
	if err != nil {
		return nil, err
	}
	if where.notice != "" {
		say("the locks are kept %s", where.notice)
	}
	ctx := context.Background()
	where.conns = 2
	open, err := where.connect(ctx, "", firstContact)
	if err != nil {
		return nil, err
	}
	where.warn(ctx, open)
	return c.newSession(where, open, fencelock.Options{TTL: placeKept})
}

func (f *serveFlags) openAudit(stdout *terminal.Output) (*slog.Logger, error) {
	if f.audit == "-" {
		return slog.New(slog.NewJSONHandler(stdout, nil)), nil
	}
	file, err := os.OpenFile(f.audit, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fail(exitOutput, "the audit log cannot be written: %v", terminal.Pathless(err))
	}
	return slog.New(slog.NewJSONHandler(file, nil)), nil
}

// serveUntilSignal serves until SIGTERM or SIGINT, and then lets the clients go.
func serveUntilSignal(
	server *http.Server, l net.Listener, locks *httplock.Server, s *session, secrets *secrets, drain time.Duration,
) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	failed := make(chan error, 1)
	go func() {
		if server.TLSConfig != nil {
			failed <- server.ServeTLS(l, "", "")
		} else {
			failed <- server.Serve(l)
		}
	}()
	for {
		select {
		case err := <-failed:
			s.close()
			return fail(exitUnavailable, "serving ended: %v", err)
		case got := <-signals:
			if got == syscall.SIGHUP {
				secrets.reload()
				continue
			}
		}
		break
	}
	return endServing(server, locks, s, signals, drain)
}

// endServing lets the clients go on for at most drain; a second signal ends that.
func endServing(
	server *http.Server, locks *httplock.Server, s *session, signals <-chan os.Signal, drain time.Duration,
) error {
	locks.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	go func() {
		for got := range signals {
			if got != syscall.SIGHUP {
				cancel()
			}
		}
	}()
	for locks.Kept() > 0 && ctx.Err() == nil { // only this server can renew and release them
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if err := server.Shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) {
		say("some requests were cut off after %s", span(drain))
	}
	_ = server.Close()
	if n := locks.Kept(); n > 0 {
		// Their holders believe in them until they run out, so they are not released.
		say("%d locks that this server keeps run out by themselves", n)
		return nil
	}
	s.close()
	return nil
}
