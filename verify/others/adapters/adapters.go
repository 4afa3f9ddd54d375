// Package adapters has the adapters of package others for libraries in Go; those in other
// languages are beside it.
package adapters

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// library is a lock of one library, connected.
type library interface {
	// lock waits for the lock until ctx ends.
	lock(ctx context.Context, key string, ttl time.Duration) (held, error)
}

// held is a lock that somebody has.
type held struct {
	token  string
	ended  <-chan struct{} // closed when the library tells that the lock is lost; nil if it tells nothing
	unlock func() (lost bool, err error)
}

var (
	errRefused  = errors.New("somebody else has the lock")
	errEndless  = errors.New("a call that waits cannot give up")
	errNotFound = errors.New("there is no such adapter")
)

// Names are the names of all adapters.
func Names() []string {
	var names []string
	for name := range libraries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// opener connects a library of a module.
type opener struct {
	module string
	open   func(addr string, ttl time.Duration, say func(string)) (library, error)
}

// Run is the adapter of a library of Go, on the server at addr. It ends with its input. ttl is
// for the libraries that want to know it before the first lock.
func Run(name, addr string, ttl time.Duration, in io.Reader, out io.Writer) error {
	o, ok := libraries[name]
	if !ok {
		return fmt.Errorf("%w: %s; there are %s", errNotFound, name, strings.Join(Names(), ", "))
	}
	a := &adapter{out: out}
	var err error
	if a.library, err = o.open(addr, ttl, a.say); err != nil {
		return err
	}
	a.say("ready " + version(o.module))
	for lines := bufio.NewScanner(in); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 1 && words[0] == "unlock":
			a.say(a.unlock())
		case len(words) >= 3 && words[0] == "lock":
			switch err := a.lock(words[1], words[2:]); {
			case errors.Is(err, errRefused):
				a.say("refused")
			case err != nil:
				a.say("error " + err.Error())
			}
		default:
			a.say("error unknown request")
		}
	}
	return nil
}

// version is the version of a module in this program.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return "of this repository"
}

// adapter speaks for one lock at a time.
type adapter struct {
	library library
	held    held
	over    func() // ends what waits for the loss

	mu  sync.Mutex
	out io.Writer
}

func (a *adapter) say(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Fprintln(a.out, strings.ReplaceAll(text, "\n", " "))
}

// lock takes the lock of key, and says so. millis are TTL_MS and, if the call may give up, WAIT_MS.
func (a *adapter) lock(key string, millis []string) error {
	var times []time.Duration
	for _, m := range millis {
		n, err := strconv.Atoi(m)
		if err != nil {
			return err
		}
		times = append(times, time.Duration(n)*time.Millisecond)
	}
	ctx := context.Background()
	if len(times) > 1 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, times[1])
		defer cancel()
	}
	h, err := a.library.lock(ctx, key, times[0])
	if err != nil && ctx.Err() != nil {
		return errRefused // it gave up
	}
	if err != nil {
		return err
	}
	unlocked := make(chan struct{})
	a.held, a.over = h, sync.OnceFunc(func() { close(unlocked) })
	a.say(strings.TrimSpace("held " + h.token))
	if h.ended != nil {
		go a.watch(h.ended, unlocked)
	}
	return nil
}

// watch tells of a loss before the unlock.
func (a *adapter) watch(ended, unlocked <-chan struct{}) {
	select {
	case <-ended:
	case <-unlocked:
		return
	}
	select {
	case <-unlocked: // which ends it, too
	default:
		a.say("told by the library")
	}
}

func (a *adapter) unlock() string {
	if a.over == nil {
		return "error nothing is held"
	}
	a.over()
	lost, err := a.held.unlock()
	switch {
	case lost:
		return "lost"
	case err != nil:
		return "error " + err.Error()
	}
	return "released"
}

// lockFunc is a library that is one function.
type lockFunc func(ctx context.Context, key string, ttl time.Duration) (held, error)

func (f lockFunc) lock(ctx context.Context, key string, ttl time.Duration) (held, error) {
	return f(ctx, key, ttl)
}

// shortly is for requests whose caller does not say how long they may take.
func shortly() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 3*time.Second)
}
