// Command fencelock-lab plays locks as tutorials write them, and shows how each of them
// breaks. The command fencelock starts it for "fencelock lab".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9/logging"

	"github.com/fencelock/fencelock/internal/terminal"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/lab"
)

const help = `fencelock lab lists locks as tutorials write them, and what each of them breaks.
fencelock lab N plays one, step by step: what clients A and B do, what the store holds
after it, where it broke, and the same schedule against fencelock.

  fencelock lab [N] [--lang en|zh] [--all]

  --all   play all schemes, one after the other
  --lang  en or zh (default from LC_ALL, LC_MESSAGES, LANG)

It needs no store of yours and touches none: it starts servers of its own, in a
temporary folder, on loopback ports, and ends them: redis-server, for 19 and 20
PostgreSQL, for 21 etcd.

Exit codes: 0 everything behaved as the text says, 1 not so, 64 usage, 74 the output
could not be written, 78 a server is not installed.
`

// The exit codes are those of the command fencelock, and one more.
const (
	exitNotAsTold = 1
	exitUsage     = 64
	exitOutput    = 74
	exitConfig    = 78
)

// failure ends the program with a line and an exit code.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func fail(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "fencelock: %s\n", terminal.OneLine(fmt.Sprintf(format, args...)))
}

func main() {
	out := terminal.Stdout()
	err := run(os.Args[1:], out)
	if lost := out.Close(); lost != nil && (err == nil || errors.Is(err, lost)) {
		err = fail(exitOutput, "the output could not be written: %v", terminal.Pathless(lost))
	}
	var own *failure
	switch {
	case errors.As(err, &own):
		say("%s", own.text)
		os.Exit(own.code)
	case err != nil:
		say("%v", err)
		os.Exit(exitNotAsTold)
	}
}

func run(args []string, w io.Writer) error {
	flags := flag.NewFlagSet("fencelock lab", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	all := flags.Bool("all", false, "")
	asked := flags.String("lang", "", "")
	var numbers []string
	for rest := args; ; { // flags may follow the number of a scheme
		if err := flags.Parse(rest); errors.Is(err, flag.ErrHelp) {
			_, err := io.WriteString(w, help)
			return err
		} else if err != nil {
			return fail(exitUsage, "%v; see fencelock lab --help", err)
		}
		if flags.NArg() == 0 {
			break
		}
		numbers, rest = append(numbers, flags.Arg(0)), flags.Args()[1:]
	}
	l, err := language(*asked)
	if err != nil {
		return err
	}
	switch {
	case *all && len(numbers) > 0:
		return fail(exitUsage, "--all plays every scheme; leave out %s", terminal.Quote(numbers[0]))
	case len(numbers) > 1:
		return fail(exitUsage, "want at most one argument, the number of a scheme, and not %d", len(numbers))
	case *all:
		return play(w, lab.All(), l)
	case len(numbers) == 0:
		return list(w, l)
	}
	schemes := lab.All()
	n, err := strconv.Atoi(numbers[0])
	if err != nil || n < 1 || n > len(schemes) {
		return fail(exitUsage, "there is no scheme %s; there are 1 to %d: see fencelock lab",
			terminal.Quote(numbers[0]), len(schemes))
	}
	return play(w, schemes[n-1:n], l)
}

// language is the one that is asked for, or that of the locale if the lab speaks it, or
// English.
func language(asked string) (lab.Lang, error) {
	if asked != "" {
		l, ok := lab.ParseLang(asked)
		if !ok {
			return l, fail(exitUsage, "--lang %s: want en or zh", terminal.Quote(asked))
		}
		return l, nil
	}
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		if s := os.Getenv(name); s != "" {
			l, _ := lab.ParseLang(s)
			return l, nil
		}
	}
	return lab.English, nil
}

// play plays schemes and shows each as it ends.
func play(w io.Writer, all []lab.Experiment, l lab.Lang) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := (<-signals).(syscall.Signal)
		cancel(fail(128+int(s), "%v: the lab is over", s))
	}()
	dir, err := os.MkdirTemp("", "fencelock-lab-*")
	if err != nil {
		return fail(exitConfig, "cannot make a temporary folder: %v", err)
	}
	defer os.RemoveAll(dir)
	say("%s", l.Say("starting", dir))
	logging.Disable() // nodes that cannot be reached are part of the play

	var wrong, leftOut []string
	for i, e := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		r, err := e.Play(ctx, dir)
		var missing *testserver.MissingError
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &missing):
			leftOut = append(leftOut, l.Say("missing", strconv.Itoa(e.Number), missing.Program, l.Say(missing.Program)))
			continue
		case err != nil:
			say("%v", err)
			wrong = append(wrong, strconv.Itoa(e.Number))
			continue
		case !r.AsTold(e):
			wrong = append(wrong, strconv.Itoa(e.Number))
		}
		if err := showPlay(w, e, r, l); err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		return fail(exitNotAsTold, "%s", l.Say("wrong", strings.Join(wrong, ", ")))
	}
	if len(leftOut) > 0 {
		return fail(exitConfig, "%s", strings.Join(leftOut, "; "))
	}
	return nil
}
