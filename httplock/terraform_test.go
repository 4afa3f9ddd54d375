package httplock_test

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/httplock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// lockOf is what OpenTofu sends with LOCK and UNLOCK.
func lockOf(id, who string) string {
	return fmt.Sprintf(`{"ID":%q,"Operation":"OperationTypeApply","Info":"","Who":%q,"Version":"1.12.6",`+
		`"Created":"2026-11-25T13:00:00.5Z","Path":""}`, id, who)
}

// idAlone is what force-unlock of OpenTofu sends.
func idAlone(id string) string {
	return fmt.Sprintf(`{"ID":%q,"Operation":"","Info":"","Who":"","Version":"",`+
		`"Created":"0001-01-01T00:00:00Z","Path":""}`, id)
}

func stateOf(serial int) string {
	return fmt.Sprintf(`{"version":4,"serial":%d,"lineage":"a-lineage","resources":[]}`, serial)
}

// terraform is a Server with states in dir.
func (w *world) terraform(dir string, o httplock.Options) *local {
	w.Helper()
	states, err := httplock.NewStateFolder(dir)
	if err != nil {
		w.Fatal(err)
	}
	o.States = states
	return w.server(&o)
}

func (l *local) as(token string) *local {
	c := *l
	c.bearer = token
	return &c
}

const prod = "/v1/terraform/prod"

func TestTerraformLocksAndWrites(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.terraform(t.TempDir(), httplock.Options{})
		s.do("GET", prod, "").is(t, 404, "not-found")
		s.do("LOCK", prod, lockOf("id-1", "alice@laptop")).ok(t)
		refused := s.do("LOCK", prod, lockOf("id-2", "bob@ci"))
		if refused.status != 423 || refused.text("ID") != "id-1" || refused.text("Who") != "alice@laptop" ||
			refused.text("Operation") != "OperationTypeApply" || refused.text("Path") != "terraform/prod" ||
			refused.text("Created") != "2026-11-25T13:00:00.5Z" || !strings.Contains(refused.text("Info"), "fencing token") {
			t.Errorf("the refusal is %v", refused)
		}
		s.do("POST", prod+"?ID=id-2", stateOf(1)).is(t, 409, "not-acquired")
		s.do("DELETE", prod+"?ID=id-2", "").is(t, 409, "not-acquired")
		if r := s.do("POST", prod, stateOf(1)); r.status != 423 || r.text("ID") != "id-1" {
			t.Errorf("a write without a lock of a locked state is answered by %v", r)
		}
		s.do("POST", prod+"?ID=id-1", stateOf(1)).ok(t)
		if got := s.raw(prod); got != stateOf(1) {
			t.Errorf("the state is %q", got)
		}
		s.do("UNLOCK", prod, lockOf("id-2", "bob@ci")).is(t, 409, "not-acquired")
		s.do("UNLOCK", prod, lockOf("id-1", "alice@laptop")).ok(t)
		s.do("UNLOCK", prod, lockOf("id-1", "alice@laptop")).ok(t) // the first answer was lost
		s.do("UNLOCK", prod, lockOf("id-2", "bob@ci")).is(t, 404, "no-claim")
		s.do("POST", prod+"?ID=id-1", stateOf(2)).is(t, 410, "lost")
		s.do("LOCK", prod, lockOf("id-2", "bob@ci")).ok(t)
		s.do("DELETE", prod+"?ID=id-2", "").ok(t)
		s.do("GET", prod, "").is(t, 404, "not-found")
		s.do("PATCH", prod, "").is(t, 405, "method")
	})
}

// raw is the body of an answer.
func (l *local) raw(path string) string {
	l.Helper()
	w := httptest.NewRecorder()
	l.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, nil))
	if w.Code != 200 {
		l.Errorf("GET %s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// A LOCK whose answer was lost is repeated with its ID.
func TestTerraformRepeatedLockIsOneLock(t *testing.T) {
	inWorld(t, func(w *world) {
		dir := t.TempDir()
		a, b := w.terraform(dir, httplock.Options{}), w.terraform(dir, httplock.Options{})
		a.do("LOCK", prod, lockOf("id-1", "alice")).ok(t)
		b.do("LOCK", prod, lockOf("id-1", "alice")).ok(t)
		b.do("UNLOCK", prod, lockOf("id-1", "alice")).ok(t)
		a.do("LOCK", prod, lockOf("id-2", "bob")).ok(t)
	})
}

func TestTerraformLockIsSticky(t *testing.T) {
	inWorld(t, func(w *world) {
		dir := t.TempDir()
		first := w.terraform(dir, httplock.Options{})
		first.do("LOCK", prod, lockOf("id-1", "alice")).ok(t)
		first.do("LOCK", "/v1/terraform/short?ttl=1h", lockOf("id-s", "alice")).ok(t)
		first.Drain()
		time.Sleep(300 * 24 * time.Hour) // nobody serves
		renewer := w.terraform(dir, httplock.Options{})
		time.Sleep(time.Minute)
		renewer.Drain()
		time.Sleep(300 * 24 * time.Hour)
		second := w.terraform(dir, httplock.Options{})
		second.do("LOCK", "/v1/terraform/short", lockOf("id-2", "bob")).ok(t)
		if r := second.do("LOCK", prod, lockOf("id-2", "bob")); r.status != 423 || r.text("Who") != "alice" {
			t.Errorf("the lock is not sticky: %v", r)
		}
		second.do("POST", prod+"?ID=id-1", stateOf(1)).ok(t)
		line := second.do("GET", "/v1/line?key=terraform/prod", "").ok(t)
		holder, _ := line.answer["holders"].([]any)[0].(map[string]any)
		if holder["owner"] != "alice" || holder["note"] != "apply, lock ID id-1" {
			t.Errorf("the line has the holder %v", holder)
		}
		second.do("POST", "/v1/break", marshal(map[string]any{
			"key": "terraform/prod", "token": holder["token"], "reason": "stuck"})).ok(t)
		second.do("POST", prod+"?ID=id-1", stateOf(2)).is(t, 410, "lost")
		second.do("UNLOCK", prod, lockOf("id-1", "alice")).is(t, 410, "lost")
		second.do("LOCK", prod, lockOf("id-2", "bob")).ok(t)
		second.do("POST", prod+"?ID=id-1", stateOf(2)).is(t, 409, "not-acquired")
	})
}

// A lock with a ttl ends, and what its holder writes afterwards is refused.
func TestTerraformLockWithTTLEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.terraform(t.TempDir(), httplock.Options{})
		s.do("LOCK", prod+"?ttl=1h", lockOf("id-1", "alice")).ok(t)
		time.Sleep(59 * time.Minute)
		if r := s.do("LOCK", prod, lockOf("id-2", "bob")); r.status != 423 || !strings.Contains(r.text("Info"), "ends in ") {
			t.Errorf("before the end: %v", r)
		}
		time.Sleep(2 * time.Minute)
		s.do("POST", prod+"?ID=id-1", stateOf(1)).is(t, 410, "lost")
		s.do("LOCK", prod, lockOf("id-2", "bob")).ok(t)
	})
}

func TestTerraformWaitsInLine(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.terraform(t.TempDir(), httplock.Options{})
		s.do("LOCK", prod, lockOf("id-1", "alice")).ok(t)
		done := make(chan result, 1)
		go func() { done <- s.do("LOCK", prod+"?wait=5m", lockOf("id-2", "bob")) }()
		time.Sleep(time.Minute)
		if n := s.waiters("terraform/prod"); n != 1 {
			t.Errorf("%d wait", n)
		}
		s.do("UNLOCK", prod, lockOf("id-1", "alice")).ok(t)
		(<-done).ok(t)
		r := s.do("LOCK", prod+"?wait=2s", lockOf("id-3", "carol"))
		if r.status != 423 || r.text("Who") != "bob" {
			t.Errorf("after the wait: %v", r)
		}
	})
}

func TestTerraformForceUnlock(t *testing.T) {
	tokens, of := tokensFor(t, "alice acquire terraform/", "bob acquire terraform/", "ops break terraform/", "out acquire ci/")
	for name, c := range map[string]struct {
		who, body string
		status    int
		slug      string
	}{
		"one's own, OpenTofu":        {"alice", idAlone("id-1"), 200, ""},
		"one's own, Terraform":       {"alice", "", 200, ""},
		"one's own, wrong ID":        {"alice", idAlone("id-2"), 409, "not-acquired"},
		"another's":                  {"bob", idAlone("id-1"), 403, "forbidden"},
		"another's, as if its owner": {"bob", lockOf("id-1", "alice"), 403, "forbidden"},
		"another's, Terraform":       {"bob", "", 403, "forbidden"},
		"another's, by who may":      {"ops", idAlone("id-1"), 200, ""},
		"another's, by who may, all": {"ops", "", 200, ""},
		"of another prefix":          {"out", idAlone("id-1"), 403, "forbidden"},
		"not JSON":                   {"alice", "id-1", 400, "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				s := w.terraform(t.TempDir(), httplock.Options{Tokens: tokens})
				s.as(of["alice"]).do("LOCK", prod, lockOf("id-1", "alice")).ok(t)
				s.as(of["bob"]).do("POST", prod+"?ID=id-1", stateOf(1)).is(t, 403, "forbidden")
				s.as(of["ops"]).do("POST", prod+"?ID=id-1", stateOf(1)).is(t, 403, "forbidden")
				s.as(of["ops"]).do("GET", prod, "").is(t, 403, "forbidden")
				s.as(of[c.who]).do("UNLOCK", prod, c.body).is(t, c.status, c.slug)
				again := s.as(of["bob"]).do("LOCK", prod, lockOf("id-3", "bob"))
				if want := map[bool]int{true: 200, false: 423}[c.status == 200]; again.status != want {
					t.Errorf("then LOCK is answered by %v", again)
				}
			})
		})
	}
}

// The key may be held by a program that knows nothing of Terraform.
func TestTerraformMeetsOtherHolders(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.terraform(t.TempDir(), httplock.Options{})
		h := s.do("POST", "/v1/acquire", `{"key":"terraform/prod","owner":"carol","note":"surgery"}`).ok(t)
		r := s.do("LOCK", prod, lockOf("id-1", "alice"))
		if r.status != 423 || r.text("Who") != "carol" || !strings.Contains(r.text("Info"), "surgery") {
			t.Errorf("LOCK: %v", r)
		}
		s.do("POST", prod+"?ID=id-1", stateOf(1)).is(t, 409, "not-acquired")
		s.do("UNLOCK", prod, idAlone(r.text("ID"))).ok(t)
		s.verb("check", h).is(t, 410, "lost")
		s.do("POST", "/v1/acquire", `{"key":"terraform/pool","kind":"permits","size":2}`).ok(t)
		r = s.do("LOCK", "/v1/terraform/pool", lockOf("id-1", "alice"))
		if r.status != 423 || r.text("Info") == "" {
			t.Errorf("LOCK of a semaphore: %v", r)
		}
		s.do("LOCK", prod, `{"ID":""}`).is(t, 423, "")
	})
}

// The store of the records has lost its data, and somebody else has a token that was given out
// before.
func TestTerraformForceUnlockSparesOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		dir := t.TempDir()
		before := w.terraform(dir, httplock.Options{})
		before.do("LOCK", prod, lockOf("id-1", "alice")).ok(t)
		old := before.do("GET", "/v1/line?key=terraform/prod", "").ok(t)
		w.store = memlock.New()
		after := w.terraform(dir, httplock.Options{})
		h := after.acquire("terraform/prod")
		if h.text("token") != old.text("last_token") {
			t.Fatalf("the tokens are %v and %v; the test needs equal ones", h.text("token"), old.text("last_token"))
		}
		after.do("POST", prod+"?ID=id-1", stateOf(1)).is(t, 410, "lost")
		after.do("UNLOCK", prod, idAlone("id-1")).ok(t) // there was nothing to end
		after.verb("check", h).ok(t)
	})
}

func TestTerraformWriteWithoutLock(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.terraform(t.TempDir(), httplock.Options{})
		s.do("POST", prod, stateOf(1)).ok(t)
		s.do("PUT", prod, stateOf(2)).ok(t)
		if got := s.raw(prod); got != stateOf(2) {
			t.Errorf("the state is %q", got)
		}
		s.do("LOCK", prod, lockOf("id-1", "alice")).ok(t)
		s.do("UNLOCK", prod, lockOf("id-1", "alice")).ok(t)
		s.do("DELETE", prod, "").ok(t)
		s.do("GET", prod, "").is(t, 404, "not-found")
	})
}

func TestTerraformRefusesBadStates(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.terraform(t.TempDir(), httplock.Options{})
		s.do("LOCK", prod, lockOf("id-1", "alice")).ok(t)
		mine := prod + "?ID=id-1"
		s.do("POST", mine, stateOf(5)).ok(t)
		s.do("POST", mine, stateOf(5)).ok(t) // the first answer was lost
		s.do("POST", mine, stateOf(4)).is(t, 400, "invalid")
		s.do("POST", mine, `{"lineage":"b","serial":9}`).is(t, 400, "invalid")
		s.do("POST", mine, stateOf(6)[:30]).is(t, 400, "invalid")
		s.do("POST", mine, "").is(t, 400, "invalid")
		s.do("POST", mine+"&force=perhaps", stateOf(6)).is(t, 400, "invalid")
		s.do("POST", mine+"&farce=true", stateOf(6)).is(t, 400, "invalid")
		for _, query := range []string{"ttl=forever", "ttl=1ms", "wait=6m", "wait=-1s", "tll=1h"} {
			r := s.do("LOCK", prod+"?"+query, lockOf("id-2", "bob"))
			if name, _, _ := strings.Cut(query, "="); r.status != 423 || !strings.Contains(r.text("Info"), name) {
				t.Errorf("LOCK with %s is answered by %v", query, r)
			}
		}
		r := httptest.NewRequest("POST", "http://localhost"+mine, strings.NewReader(stateOf(6)))
		r.Header.Set("Content-MD5", sumOf(stateOf(7)))
		s.serve(r).is(t, 400, "invalid")
		if got := s.raw(prod); got != stateOf(5) {
			t.Errorf("the state is %q", got)
		}
		r = httptest.NewRequest("POST", "http://localhost"+mine, strings.NewReader(stateOf(6)))
		r.Header.Set("Content-MD5", sumOf(stateOf(6)))
		s.serve(r).ok(t)
		s.do("POST", mine+"&force=true", stateOf(1)).ok(t)
	})
}

func sumOf(s string) string {
	sum := md5.Sum([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Names are escaped, so that none leads out of the folder, and no two are one.
func TestTerraformNames(t *testing.T) {
	inWorld(t, func(w *world) {
		outside := t.TempDir()
		dir := filepath.Join(outside, "states")
		s := w.terraform(dir, httplock.Options{})
		names := []string{
			"prod", "Prod", "../x", "../../etc/passwd", "..", ".", "a/b", "a%2fb", "a\\b", "nul\x00byte", "con", "a\nb",
			"漢字" + strings.Repeat("漢", 70), strings.Repeat("x", 246), " ", "?*[", "prod/",
		}
		for i, name := range names {
			path := "/v1/terraform/" + url.PathEscape(name)
			s.do("LOCK", path, lockOf(fmt.Sprint("id-", i), "alice")).ok(t)
			s.do("POST", fmt.Sprintf("%s?ID=id-%d", path, i), stateOf(i)).ok(t)
		}
		for i, name := range names {
			if got := s.raw("/v1/terraform/" + url.PathEscape(name)); got != stateOf(i) {
				t.Errorf("the state of %q is %s", name, got)
			}
		}
		for _, name := range []string{"", strings.Repeat("x", 247), strings.Repeat("漢", 341), "\xff\xfe"} {
			r := s.do("LOCK", "/v1/terraform/"+url.PathEscape(name), lockOf("id", "alice"))
			if r.status != 423 || r.text("ID") != "" || !strings.Contains(r.text("Info"), "name") {
				t.Errorf("LOCK of %q is answered by %v", name, r)
			}
			s.do("GET", "/v1/terraform/"+url.PathEscape(name), "").is(t, 400, "invalid")
		}
		folders, err := os.ReadDir(dir)
		if err != nil || len(folders) != len(names)+1 { // and the mutex that NewStateFolder tried
			t.Errorf("%d folders for %d names: %v", len(folders), len(names), err)
		}
		if beside, _ := os.ReadDir(outside); len(beside) != 1 {
			t.Errorf("something is outside of the folder: %v", beside)
		}
		files, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
		for _, f := range files {
			if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 || strings.HasSuffix(f, ".new") {
				t.Errorf("%s has mode %v: %v", filepath.Base(f), info.Mode(), err)
			}
		}
	})
}

// Clients of Terraform send a user and a password. The token is the password.
func TestTerraformTakesTheTokenAsPassword(t *testing.T) {
	inWorld(t, func(w *world) {
		tokens, of := tokensFor(t, "ci acquire terraform/")
		s := w.terraform(t.TempDir(), httplock.Options{Tokens: tokens})
		for password, status := range map[string]int{of["ci"]: 404, "wrong": 401, "": 401} {
			r := httptest.NewRequest("GET", "http://localhost"+prod, nil)
			r.SetBasicAuth("anything", password)
			if got := s.serve(r); got.status != status {
				t.Errorf("the password %q is answered by %v", password, got)
			}
		}
	})
}

func TestTerraformNeedsStatesAndAStoreThatDetaches(t *testing.T) {
	inWorld(t, func(w *world) {
		bare := w.server(nil)
		bare.do("GET", prod, "").is(t, 404, "not-found")
		if r := bare.do("LOCK", prod, lockOf("id-1", "alice")); !strings.Contains(r.text("Info"), "--terraform-state") {
			t.Errorf("without states, LOCK is answered by %v", r)
		}
		states, err := httplock.NewStateFolder(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		client := testclient.New(t, plain{memlock.New()}, nil)
		defer client.Close()
		if _, err := httplock.New(client, &httplock.Options{States: states}); err == nil {
			t.Error("a store that cannot pass leases on was taken")
		}
	})
}

// An UNLOCK that was cut off half-way is ended by any Server.
func TestTerraformEndsWhatAnUnlockHasBegun(t *testing.T) {
	inWorld(t, func(w *world) {
		dir := t.TempDir()
		s := w.terraform(dir, httplock.Options{})
		s.do("LOCK", prod, lockOf("id-1", "alice")).ok(t)
		s.Drain() // as good as dead
		record, _ := filepath.Glob(filepath.Join(dir, "*", "lock.json"))
		var l map[string]any
		b, err := os.ReadFile(record[0])
		if err != nil || json.Unmarshal(b, &l) != nil {
			t.Fatal(err)
		}
		l["ending"] = true
		if err := os.WriteFile(record[0], []byte(marshal(l)), 0o600); err != nil {
			t.Fatal(err)
		}
		next := w.terraform(dir, httplock.Options{})
		time.Sleep(time.Minute)
		next.do("LOCK", prod, lockOf("id-2", "bob")).ok(t)
		next.do("UNLOCK", prod, lockOf("id-1", "alice")).ok(t) // repeated by its client
		if r := next.do("LOCK", prod, lockOf("id-3", "carol")); r.status != http.StatusLocked {
			t.Errorf("bob's lock is gone: %v", r)
		}
	})
}
