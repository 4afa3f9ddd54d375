package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/httplock/console"
)

const consoleHelp = `console serves web pages for you alone: who holds which lock, who waits and for how long,
what has happened since it was started. A claim can be broken there, with a reason.

  fencelock console

It prints a link to stdout. The link works once: the browser that opens it first gets a
cookie, and no other visitor is let in. It listens on this host only, on a free port unless
--listen names one, and runs until it is interrupted.

fencelock serve has the same pages at its root, for all who have a token.`

// consoleFlags are those of console.
type consoleFlags struct {
	listen   string
	readOnly bool
}

func newConsole(c *cli) *cobra.Command {
	f := &consoleFlags{}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Show the locks in a browser, for you alone",
		Long:  consoleHelp,
		Args:  noArguments("console"),
		RunE: func(*cobra.Command, []string) error {
			host, _, err := net.SplitHostPort(f.listen)
			if err != nil {
				return usage("--listen %s: want an address such as 127.0.0.1:7534", quote(f.listen))
			}
			if !isLoopback(host) {
				return usage("--listen %s is for other machines; use 127.0.0.1, or fencelock serve with --tokens",
					quote(f.listen))
			}
			return c.console(f)
		},
	}
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:0", "address to listen on; port 0 is any free one")
	cmd.Flags().BoolVar(&f.readOnly, "read-only", false, "break nothing")
	return cmd
}

func (c *cli) console(f *consoleFlags) error {
	s, err := c.openToServe()
	if err != nil {
		return err
	}
	defer s.close()
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fail(exitConfig, "--listen %s: %v", quote(f.listen), err)
	}
	link := console.NewLink()
	pages := console.New(s.Client, &console.Options{
		Store: s.store.String(), Link: link, Always: true,
		Identify: func(*http.Request, string) *console.Visitor {
			v := &console.Visitor{Look: console.All, Break: console.All}
			if f.readOnly {
				v.Break = nil
			}
			return v
		},
	})
	defer pages.Close()
	say("the console of %s is open until this is interrupted; the link works once", s.store)
	if _, err := fmt.Fprintf(c.out, "http://%s%s\n", l.Addr(), link.Path()); err != nil {
		return err
	}
	return serveConsole(l, pages)
}

// serveConsole serves until a signal.
func serveConsole(l net.Listener, pages http.Handler) error {
	server := &http.Server{
		Handler: pages, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10, IdleTimeout: 2 * time.Minute,
		ErrorLog: log.New(os.Stderr, "fencelock: ", 0),
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fail(exitUnavailable, "serving ended: %v", err)
	case <-signals:
		return server.Close()
	}
}
