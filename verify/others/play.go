package others

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

// Options say what is played.
type Options struct {
	Only, Schedule string // parts of names, by commas
	Dir            string // the folder of the module verify
	Parallel       int
	Out            io.Writer
}

// lease is the TTL of every lock. It is the shortest that etcd grants.
const lease = 2 * time.Second

// results are what was seen, by libraries.
type results struct {
	Day       string           `json:"day"`
	Machine   string           `json:"machine"`
	Packages  string           `json:"packages,omitempty"` // of Debian, by commas, as scripts/with-debian.sh says
	Libraries map[string]*seen `json:"-"`
}

type seen struct {
	Name      string            `json:"name"`
	Version   string            `json:"version"`
	Schedules map[string]result `json:"schedules"`
}

var stores = map[string]func(ctx context.Context, dir string, o ...testserver.Option) (*testserver.Server, error){
	"redis":     testserver.StartRedis,
	"etcd":      testserver.StartEtcd,
	"zookeeper": testserver.StartZooKeeper,
	"postgres":  testserver.StartPostgres,
	"mariadb":   testserver.StartMariaDB,
}

// Play plays the schedules with the libraries, and keeps the results beside those of others.
func Play(o Options) error {
	all, err := readResults(o.Dir)
	if err != nil {
		return err
	}
	all.Day, all.Machine = time.Now().UTC().Format(time.DateOnly), machine()
	all.Packages = strings.ReplaceAll(os.Getenv("DEBIAN_VERSIONS"), ",", ", ")
	var (
		mu    sync.Mutex
		group sync.WaitGroup
		errs  []error
		turns = make(chan struct{}, max(o.Parallel, 1))
	)
	for _, l := range libraries {
		if !matches(l.name+" "+l.store, o.Only) {
			continue
		}
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			s, err := playLibrary(l, o)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", l.name, err))
				return
			}
			all.take(s)
			fmt.Fprintf(o.Out, "%s has played\n", l.name)
		})
	}
	group.Wait()
	return errors.Join(append(errs, all.write(o.Dir))...)
}

func matches(name, parts string) bool {
	return parts == "" || slices.ContainsFunc(strings.Split(parts, ","), func(p string) bool {
		return strings.Contains(name, p)
	})
}

// playLibrary plays the schedules with one library on a server of its own.
func playLibrary(l library, o Options) (*seen, error) {
	dir, err := os.MkdirTemp("", "others-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	server, err := stores[l.store](context.Background(), dir, testserver.Persist(true))
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	command, err := l.command(o.Dir)
	if err != nil {
		return nil, err
	}
	stderr, err := os.CreateTemp("", "others-*.log")
	if err != nil {
		return nil, err
	}
	defer os.Remove(stderr.Name())
	defer stderr.Close()
	s := &stage{command: command, store: server, ttl: lease, endless: l.endless, stderr: stderr}
	all := &seen{Name: l.name, Schedules: map[string]result{}}
	for _, sch := range schedules {
		if !matches(sch.name, o.Schedule) || sch.redisOnly && l.store != "redis" {
			continue
		}
		r := s.play(sch, sch.name)
		all.Schedules[sch.name] = r
		if r.Failed != "" {
			fmt.Fprintf(o.Out, "%s, %s: %s\n%s\n", l.name, sch.name, r.Failed, tail(stderr.Name()))
		}
		if err := server.Restart(testserver.Persist(true)); err != nil && sch.redisOnly {
			return nil, err
		}
	}
	all.Version = s.version
	return all, nil
}

// command is the command line of the adapter, without the address.
func (l library) command(verify string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(adapterDir(verify))
	if err != nil {
		return nil, err
	}
	fill := strings.NewReplacer("{self}", self, "{dir}", dir, "{ttl}", strconv.FormatInt(lease.Milliseconds(), 10))
	var words []string
	for _, w := range l.adapter {
		words = append(words, fill.Replace(w))
	}
	return words, nil
}

// tail is the end of a file.
func tail(name string) []byte {
	text, _ := os.ReadFile(name)
	return text[max(0, len(text)-2000):]
}

// machine describes the processors and the system.
func machine() string {
	model := "unknown processors"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := strings.Cut(string(text), "model name"); ok {
			model, _, _ = strings.Cut(strings.TrimLeft(after, "\t :"), "\n")
		}
		model = fmt.Sprintf("%d × %s", strings.Count(string(text), "\nprocessor")+1, model)
	}
	return model
}

// readResults reads a line for the run, and one for each library.
func readResults(verify string) (*results, error) {
	all := &results{Libraries: map[string]*seen{}}
	text, err := os.ReadFile(resultsFile(verify))
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	lines := json.NewDecoder(bytes.NewReader(text))
	if err := lines.Decode(all); err != nil {
		return nil, err
	}
	for lines.More() {
		s := &seen{}
		if err := lines.Decode(s); err != nil {
			return nil, err
		}
		all.Libraries[s.Name] = s
	}
	return all, nil
}

// take keeps what was seen of a library.
func (r *results) take(s *seen) {
	kept := r.Libraries[s.Name]
	if kept == nil {
		r.Libraries[s.Name] = s
		return
	}
	kept.Version = s.Version
	for schedule, result := range s.Schedules {
		kept.Schedules[schedule] = result
	}
}

func (r *results) write(verify string) error {
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	errs := []error{lines.Encode(r)}
	for _, l := range libraries {
		if s := r.Libraries[l.name]; s != nil {
			errs = append(errs, lines.Encode(s))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.WriteFile(resultsFile(verify), text.Bytes(), 0o644)
}
