package httplock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/httplock"
)

func openFolder(t *testing.T, dir string) *httplock.StateFolder {
	t.Helper()
	f, err := httplock.NewStateFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Of all who write a record with one version, one does. Each StateFolder opens the mutex
// anew, as another process would.
func TestStateFolderChangesAreConditional(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	const writers, each = 8, 20
	var all sync.WaitGroup
	for range writers {
		f := openFolder(t, dir)
		all.Go(func() {
			for done := 0; done < each; {
				l, version, err := f.Lock(ctx, "prod")
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := strconv.Atoi(l.ID)
				l.ID = strconv.Itoa(n + 1)
				switch err := f.SetLock(ctx, "prod", l, version); {
				case err == nil:
					done++
				case !errors.Is(err, httplock.ErrStateChanged):
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	f := openFolder(t, dir)
	l, version, err := f.Lock(ctx, "prod")
	if l.ID != strconv.Itoa(writers*each) || err != nil {
		t.Errorf("the record counts %s changes of %d: %v", l.ID, writers*each, err)
	}
	if err := f.SetState(ctx, "prod", []byte("{}"), version+"x"); !errors.Is(err, httplock.ErrStateChanged) {
		t.Errorf("a state was written under another version: %v", err)
	}
	if _, err := f.State(ctx, "prod"); !errors.Is(err, httplock.ErrNoState) {
		t.Errorf("there is a state: %v", err)
	}
	if err := f.SetState(ctx, "prod", []byte("{}"), version); err != nil {
		t.Error(err)
	}
}

// A reader sees a whole state while others replace it.
func TestStateFolderReadersSeeWholeStates(t *testing.T) {
	f, ctx := openFolder(t, t.TempDir()), t.Context()
	whole := func(n int) []byte { return []byte(strings.Repeat(strconv.Itoa(n%10), 1<<16)) }
	if err := f.SetState(ctx, "prod", whole(0), ""); err != nil {
		t.Fatal(err)
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := range 50 {
			if err := f.SetState(ctx, "prod", whole(n), ""); err != nil {
				t.Error(err)
			}
		}
	})
	for range 200 {
		b, err := f.State(ctx, "prod")
		if err != nil || len(b) != 1<<16 || strings.Trim(string(b), string(b[:1])) != "" {
			t.Fatalf("a state of %d bytes is torn: %v", len(b), err)
		}
	}
	writer.Wait()
}

func TestStateFolderErrors(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := httplock.NewStateFolder(filepath.Join(dir, "file")); err == nil {
		t.Error("a file is no folder for states")
	}
	f := openFolder(t, filepath.Join(dir, "[a-b]*")) // a pattern that does not match itself
	if err := f.SetLock(ctx, "prod", httplock.StateLock{ID: "id-1"}, ""); err != nil {
		t.Fatal(err)
	}
	if names, err := f.Locked(ctx); len(names) != 1 || names[0] != "prod" || err != nil {
		t.Errorf("locked are %q: %v", names, err)
	}
	other := filepath.Join(dir, "[a-b]*", "broken")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "lock.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if names, err := f.Locked(ctx); len(names) != 1 || err == nil {
		t.Errorf("beside a broken record, locked are %q: %v", names, err)
	}
}

// slowStates calls before in front of the first write of a state, or of a record.
type slowStates struct {
	httplock.StateStore
	beforeState, beforeLock func()
}

func (s *slowStates) SetState(ctx context.Context, name string, b []byte, version string) error {
	if f := s.beforeState; f != nil {
		s.beforeState = nil
		f()
	}
	return s.StateStore.SetState(ctx, name, b, version)
}

func (s *slowStates) SetLock(ctx context.Context, name string, l httplock.StateLock, version string) error {
	if f := s.beforeLock; f != nil {
		s.beforeLock = nil
		f()
	}
	return s.StateStore.SetLock(ctx, name, l, version)
}

// A write that is under way when its lock is broken does not reach the next holder's state.
func TestTerraformSlowWriteIsFenced(t *testing.T) {
	inWorld(t, func(w *world) {
		folder := openFolder(t, t.TempDir())
		next := w.server(&httplock.Options{States: folder})
		slow := &slowStates{StateStore: folder}
		s := w.server(&httplock.Options{States: slow})
		s.do("LOCK", prod, lockOf("id-1", "alice")).ok(t)
		s.do("POST", prod+"?ID=id-1", stateOf(1)).ok(t)
		slow.beforeState = func() { // alice's server has looked, and is slow to write
			next.do("UNLOCK", prod, idAlone("id-1")).ok(t)
			next.do("LOCK", prod, lockOf("id-2", "bob")).ok(t)
			next.do("POST", prod+"?ID=id-2", stateOf(2)).ok(t)
		}
		s.do("POST", prod+"?ID=id-1", stateOf(3)).is(t, 409, "not-acquired")
		if got := s.raw(prod); got != stateOf(2) {
			t.Errorf("the state is %s, not bob's", got)
		}
	})
}

// A LOCK that is slow to write its record does not write over the record of the next holder.
func TestTerraformSlowLockIsFenced(t *testing.T) {
	t.Run("broken", func(t *testing.T) {
		testSlowLock(t, 423, func(next *local) {
			line := next.do("GET", "/v1/line?key=terraform/prod", "").ok(t)
			holder, _ := line.answer["holders"].([]any)[0].(map[string]any)
			next.do("POST", "/v1/break", marshal(map[string]any{
				"key": "terraform/prod", "token": holder["token"], "reason": "too slow"})).ok(t)
		})
	})
	t.Run("over", func(t *testing.T) {
		testSlowLock(t, 503, func(*local) { time.Sleep(31 * time.Second) })
	})
}

// testSlowLock has end take away the lock of a Server that has not written its record yet.
func testSlowLock(t *testing.T, status int, end func(next *local)) {
	t.Helper()
	inWorld(t, func(w *world) {
		folder := openFolder(t, w.TempDir())
		next := w.server(&httplock.Options{States: folder})
		slow := &slowStates{StateStore: folder}
		s := w.server(&httplock.Options{States: slow})
		slow.beforeLock = func() {
			end(next)
			next.do("LOCK", prod, lockOf("id-2", "bob")).ok(w)
		}
		if r := s.do("LOCK", prod, lockOf("id-1", "alice")); r.status != status || r.text("ID") != "" {
			w.Errorf("a LOCK that lost its lease is answered by %v", r)
		}
		next.do("POST", prod+"?ID=id-2", stateOf(2)).ok(w)
		if r := s.do("LOCK", prod, lockOf("id-1", "alice")); r.status != 423 || r.text("Who") != "bob" {
			w.Errorf("then LOCK is answered by %v", r)
		}
	})
}

// A Server that cannot write the record does not keep the lock.
func TestTerraformLockEndsIfItCannotBeNoted(t *testing.T) {
	inWorld(t, func(w *world) {
		dir := t.TempDir()
		s := w.terraform(dir, httplock.Options{})
		s.do("LOCK", prod, lockOf("id-0", "alice")).ok(t)
		s.do("UNLOCK", prod, lockOf("id-0", "alice")).ok(t)
		records, _ := filepath.Glob(filepath.Join(dir, "*", "lock.json"))
		blocked := records[0] + ".new"
		if err := os.Mkdir(blocked, 0o700); err != nil { // where the new record is to be written
			t.Fatal(err)
		}
		s.do("LOCK", prod, lockOf("id-1", "alice")).is(t, 503, "unavailable")
		if err := os.Remove(blocked); err != nil {
			t.Fatal(err)
		}
		s.do("LOCK", prod, lockOf("id-2", "bob")).ok(t)
	})
}
