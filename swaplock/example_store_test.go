package swaplock_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/swaplock"
)

// dirStore keeps each key in a file of a directory, for the goroutines of one process.
type dirStore struct {
	dir string
	mu  sync.Mutex // makes each step atomic; a real store has a transaction or a conditional write
}

// entry holds all of a key.
type entry struct {
	Key     string
	Version int // 0 if there is nothing
	Content swaplock.Content
	Records map[string]time.Time
}

// path is a hash: a key has up to 1024 bytes of any value, which no file system takes.
func (s *dirStore) path(key string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%x", sha256.Sum256([]byte(key))))
}

func (s *dirStore) load(ctx context.Context, key string) (e entry, err error) {
	if ctx.Err() != nil {
		return e, ctx.Err()
	}
	e, err = read(s.path(key))
	if e.Records == nil {
		e.Records = map[string]time.Time{}
	}
	return e, err
}

func read(path string) (e entry, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(text)).Decode(&e) // JSON would spoil bytes that are not UTF-8
	}
	return e, err
}

func (s *dirStore) save(key string, e *entry) error {
	e.Key = key
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(e); err != nil {
		return err
	}
	if err := os.WriteFile(s.path(key)+".new", text.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(s.path(key)+".new", s.path(key))
}

func (s *dirStore) Traits() swaplock.Traits {
	return swaplock.Traits{Name: "directory", Namespace: s.dir}
}

func (s *dirStore) Read(ctx context.Context, key string, _ int) (swaplock.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.load(ctx, key)
	st := swaplock.State{Now: time.Now(), Content: e.Content, Records: e.Records}
	if e.Version > 0 {
		st.Version = strconv.Itoa(e.Version)
	}
	return st, err
}

func (s *dirStore) Swap(ctx context.Context, key string, c *swaplock.Change) (version string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.load(ctx, key)
	if err != nil {
		return "", err
	}
	now, found := time.Now(), ""
	if e.Version > 0 {
		found = strconv.Itoa(e.Version)
	}
	switch {
	case found != c.If,
		!c.Ended.IsZero() && !c.Ended.Equal(e.Content.Expires),
		!c.Before.IsZero() && !now.Before(c.Before):
		return "", nil
	}
	was := e.Content
	e.Content = c.Content
	e.Content.Last = max(was.Last, c.Last)
	if c.Holder == was.Holder && was.Expires.After(c.Expires) {
		e.Content.Expires = was.Expires
	}
	for _, id := range c.Drop {
		delete(e.Records, id)
	}
	for _, l := range c.Lend {
		if end := now.Add(l.TTL); end.After(e.Records[l.ID]) {
			e.Records[l.ID] = end
		}
	}
	// A key that was forgotten must not begin with a version that it has had: the time is larger.
	e.Version = max(e.Version+1, int(now.UnixMicro()))
	return strconv.Itoa(e.Version), s.save(key, &e)
}

func (s *dirStore) Renew(ctx context.Context, ls []swaplock.Lease) ([]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	alive := make([]bool, len(ls))
	for i, l := range ls {
		e, err := s.load(ctx, l.Key)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		end, record := now.Add(l.TTL), e.Records[l.ID]
		switch {
		case e.Content.Holder == l.ID && e.Content.Expires.After(now):
			if end.After(e.Content.Expires) {
				e.Content.Expires = end
			}
		case record.After(now):
			if end.After(record) {
				e.Records[l.ID] = end
			}
		default:
			continue
		}
		alive[i] = true
		if err := s.save(l.Key, &e); err != nil {
			return nil, err
		}
	}
	return alive, nil
}

func (s *dirStore) Purge(ctx context.Context, key string, ids []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.load(ctx, key)
	for _, id := range ids {
		if !e.Records[id].After(time.Now()) {
			delete(e.Records, id)
		}
	}
	if err != nil || e.Version == 0 {
		return err
	}
	return s.save(key, &e)
}

// keys lists the keys that begin with prefix, in order.
func (s *dirStore) keys(prefix string) (all []string, err error) {
	files, err := filepath.Glob(filepath.Join(s.dir, "*"))
	for _, path := range files {
		if e, err := read(path); err == nil && e.Version > 0 && strings.HasPrefix(e.Key, prefix) {
			all = append(all, e.Key)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

func (s *dirStore) Forget(ctx context.Context, last int64) (stale []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, err := s.keys("")
	for _, key := range keys {
		e, err := s.load(ctx, key)
		switch {
		case err != nil:
			return stale, err
		case e.Content.Last >= last:
		case len(e.Content.Document) > 0:
			stale = append(stale, key)
		case e.Content.Mark == "":
			if err := os.Remove(s.path(key)); err != nil {
				return stale, err
			}
		}
	}
	return stale, err
}

func (s *dirStore) List(ctx context.Context, prefix string) iter.Seq2[swaplock.Keyed, error] {
	return func(yield func(swaplock.Keyed, error) bool) {
		keys, err := s.keys(prefix)
		if err != nil {
			yield(swaplock.Keyed{}, err)
			return
		}
		for _, key := range keys {
			st, err := s.Read(ctx, key, -1)
			if err == nil && len(st.Document) == 0 {
				continue
			}
			if !yield(swaplock.Keyed{Key: key, State: st}, err) || err != nil {
				return
			}
		}
	}
}

func (s *dirStore) Watch(
	ctx context.Context, waiting func() map[string]string, hear func(key string, news []swaplock.News),
) error {
	hear("", nil)
	for {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		for key, version := range waiting() {
			if st, err := s.Read(ctx, key, 0); err == nil && st.Version != version {
				hear(key, nil)
			}
		}
	}
}

func TestDirectoryAnswersAsTheModel(t *testing.T) {
	drivertest.ModelInBubbles(t, views(&dirStore{dir: t.TempDir()}), steps.Seeds(2)...)
}

// The laws never call Forget.
func TestDirectoryForgetsWhatIsIdle(t *testing.T) {
	s := &dirStore{dir: t.TempDir()}
	b := opened(t, s)
	for key, e := range map[string]*driver.Exit{"held": nil, "idle": {}, "marked": {Mark: "kept"}} {
		c := exclusive(key, time.Hour)
		c.Key = key
		if ticket := entered(t, b, c); e != nil {
			steps.Must(t, b.Leave(t.Context(), ticket, *e))
		}
	}
	stale, err := s.Forget(t.Context(), math.MaxInt64)
	steps.Must(t, err)
	keys, err := s.keys("")
	steps.Must(t, err)
	steps.Same(t, "what is to be looked at, and what is kept", fmt.Sprint(stale, keys), "[held] [held marked]")
}

// The page for those who write a store has this one whole.
func TestPageHasTheWholeStore(t *testing.T) {
	page, err := os.ReadFile("../docs/your-own-store.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_store_test.go")
	if err != nil {
		t.Fatal(err)
	}
	from, to := bytes.Index(source, []byte("// dirStore keeps")), bytes.Index(source, []byte("func TestDirectoryAnswers"))
	if !bytes.Contains(page, bytes.TrimSpace(source[from:to])) {
		t.Error("docs/your-own-store.md has another store: copy it from example_store_test.go")
	}
}
