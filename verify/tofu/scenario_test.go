package tofu

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Two people apply at once: one is refused with the holder's name, and one that waits gets its
// turn. Then a killed tofu is unlocked by force. The exchanges are what httplock plays again in
// TestTerraformAsRecorded.
func TestTwoPeopleAndForceUnlock(t *testing.T) {
	s := newSite(t)
	sv := s.serve("127.0.0.1:0")
	s.recorder = &recorder{}
	front := s.recorder.before(t, sv.url)
	alice, bob := s.person("alice", same(front), ""), s.person("bob", same(front), "")

	first := alice.apply("one")
	refused := bob.run(applyArgs("two")...)
	host, _ := os.Hostname()
	s.want(1, refused, "Error acquiring the state lock", "already locked", "OperationTypeApply", "@"+host, "fencing token",
		"terraform/network/prod")
	if ls := s.command("ls"); !strings.Contains(ls, "terraform/network/prod") || !strings.Contains(ls, s.holderID(refused)) {
		t.Errorf("fencelock ls does not list the lock:\n%s", ls)
	}
	s.want(1, bob.run("force-unlock", "-force", "00000000-0000-0000-0000-000000000000"), "Failed to unlock state", "409")
	waiting := bob.begin(applyArgs("two", "-lock-timeout=100s")...)
	s.until("bob is refused and tries again", func() bool {
		return strings.Count(sv.audit.String(), `"not-acquired"`) >= 2
	})
	alice.allow()
	bob.allow()
	s.want(0, first.end(), "Apply complete")
	s.want(0, waiting.end(), "Apply complete! Resources: 1 added, 0 changed, 1 destroyed")
	alice.stateHas("two")

	for _, name := range []string{"begun", "go"} {
		if err := os.Remove(alice.file(name)); err != nil {
			t.Fatal(err)
		}
	}
	killed := alice.apply("three")
	if err := killed.Process.Kill(); err != nil { // kill -9
		t.Fatal(err)
	}
	killed.end()
	alice.allow() // the provisioner outlives its tofu
	refused = bob.run(applyArgs("four")...)
	s.want(1, refused, "Error acquiring the state lock")
	s.want(0, bob.run("force-unlock", "-force", s.holderID(refused)), "successfully unlocked")
	s.want(0, bob.run(applyArgs("four")...), "Apply complete")
	s.want(1, bob.run("force-unlock", "-force", s.holderID(refused)), "Failed to unlock state", "404")
	bob.stateHas("four")
	s.recorder.save(t)
}

// fencelock serve is killed while an apply runs, and started again: the lock and the state are
// where they were.
func TestServerIsKilledDuringAnApply(t *testing.T) {
	s := newSite(t)
	sv := s.serve("127.0.0.1:0")
	alice, bob := s.person("alice", same(sv.url), ""), s.person("bob", same(sv.url), "")
	apply := alice.apply("one")
	sv.kill()
	s.serve(strings.TrimPrefix(sv.url, "http://"))
	s.want(1, bob.run(applyArgs("two")...), "Error acquiring the state lock", "OperationTypeApply")
	alice.allow()
	s.want(0, apply.end(), "Apply complete")
	bob.stateHas("one")
	if ls := s.command("ls"); strings.Contains(ls, "terraform/") {
		t.Errorf("something is still locked:\n%s", ls)
	}
}

// LOCK, state and UNLOCK go to three servers on one store and one folder.
func TestSeveralServers(t *testing.T) {
	s := newSite(t)
	var urls [3]string
	for i := range urls {
		urls[i] = s.serve("127.0.0.1:0").url
	}
	alice, bob := s.person("alice", urls, ""), s.person("bob", [3]string{urls[2], urls[0], urls[1]}, "")
	apply := alice.apply("one")
	s.want(1, bob.run(applyArgs("two")...), "Error acquiring the state lock")
	alice.allow()
	bob.allow()
	s.want(0, apply.end(), "Apply complete")
	s.want(0, bob.run(applyArgs("two")...), "Apply complete")
	alice.stateHas("two")
}

// With wait in the address of LOCK, the claim of a waiting tofu is in the line.
func TestWaitsInLine(t *testing.T) {
	s := newSite(t)
	url := s.serve("127.0.0.1:0").url
	alice := s.person("alice", same(url), "")
	bob := s.person("bob", same(url), "")
	text, err := os.ReadFile(bob.file("main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	lock := regexp.MustCompile(`(\n *lock_address .*prod)`)
	if err := os.WriteFile(bob.file("main.tf"), lock.ReplaceAll(text, []byte("$1?wait=2m")), 0o600); err != nil {
		t.Fatal(err)
	}
	s.want(0, bob.run("init", "-reconfigure"), "successfully initialized")
	first := alice.apply("one")
	bob.allow()
	second := bob.begin(applyArgs("two")...)
	s.until("bob is in the line", func() bool { return strings.Contains(s.command("show", "terraform/network/prod"), "waits") })
	alice.allow()
	s.want(0, first.end(), "Apply complete")
	s.want(0, second.end(), "Apply complete")
	alice.stateHas("two")
}

// An operator breaks the lock of an apply that goes on. What the apply writes is refused, and
// tofu keeps it in a file.
func TestBrokenLockCannotWrite(t *testing.T) {
	s := newSite(t)
	sv := s.serve("127.0.0.1:0")
	alice, bob := s.person("alice", same(sv.url), ""), s.person("bob", same(sv.url), "")
	apply := alice.apply("one")
	refused := bob.run(applyArgs("two")...)
	token := tokenText.FindStringSubmatch(refused.out)
	if token == nil {
		t.Fatalf("no token in:\n%s", refused.out)
	}
	s.command("break", "terraform/network/prod", "--reason", "stuck", "--yes", "--token", token[1])
	bob.allow()
	s.want(0, bob.run(applyArgs("two")...), "Apply complete")
	alice.allow()
	s.want(1, apply.end(), "HTTP error: 410", "errored.tfstate", "Error releasing the state lock")
	bob.stateHas("two")
	if _, err := os.Stat(filepath.Join(alice.dir, "errored.tfstate")); err != nil {
		t.Error(err)
	}
}

// Tokens are passwords, and say who may do what.
func TestTokens(t *testing.T) {
	s := newSite(t)
	token := func(name, verbs, prefixes string) string {
		t.Helper()
		out := s.command("serve", "token", name)
		var line, secret string
		for l := range strings.Lines(out) {
			if strings.Contains(l, "sha256:") {
				line = l
			} else if i := strings.LastIndex(l, "flt_"); i >= 0 {
				secret = strings.TrimSpace(l[i:])
			}
		}
		f := strings.Fields(line)
		tokens, err := os.OpenFile(filepath.Join(s.dir, "tokens"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer tokens.Close()
		if _, err := tokens.WriteString(strings.Join([]string{f[0], f[1], verbs, prefixes}, " ") + "\n"); err != nil {
			t.Fatal(err)
		}
		return secret
	}
	login := func(secret string) string {
		return "\n    username = \"fencelock\"\n    password = \"" + secret + "\""
	}
	ci, dev, ops := token("ci", "acquire", "terraform/"), token("dev", "acquire", "terraform/"),
		token("ops", "acquire,break", "terraform/")
	other := token("other", "acquire", "nightly")
	sv := s.serve("127.0.0.1:0", "--tokens", filepath.Join(s.dir, "tokens"))
	alice := s.person("alice", same(sv.url), login(ci))
	s.want(1, s.stranger("nobody", same(sv.url), "").run("init"), "requires auth")
	s.want(1, s.stranger("wrong", same(sv.url), login("flt_wrong")).run("init"), "requires auth")
	s.want(1, s.stranger("other", same(sv.url), login(other)).run("init"), "invalid auth")
	killed := alice.apply("one")
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.end()
	alice.allow()
	developer, operator := s.person("dev", same(sv.url), login(dev)), s.person("ops", same(sv.url), login(ops))
	refused := developer.run(applyArgs("two")...)
	s.want(1, refused, "Error acquiring the state lock", "locked with the token of ci")
	id := s.holderID(refused)
	s.want(1, developer.run("force-unlock", "-force", id), "Failed to unlock state", "403")
	s.want(0, operator.run("force-unlock", "-force", id), "successfully unlocked")
	developer.allow()
	s.want(0, developer.run(applyArgs("two")...), "Apply complete")
}
