//go:build linux

package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/history"
	"github.com/fencelock/fencelock/internal/note"
	"github.com/fencelock/fencelock/internal/terminal"
)

// startFull starts fencelock with a stdout that takes no bytes: a full disk.
func (s *stage) startFull(args ...string) *proc {
	s.t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(s.t, err)
	defer full.Close()
	p := s.command("fencelock", args...)
	p.cmd.Stdout = full
	return p.begin()
}

func TestLostOutputIsAFailure(t *testing.T) {
	t.Parallel()
	// What each verb prints to stdout. Those without an entry print nothing there but
	// their help; check prints for a good handle alone.
	prints := map[string][]string{
		"acquire":    {"acquire n2"},
		"bench":      {"--url memory: bench --for 0.2", "--url memory: bench --for 0.2 -o json"},
		"config":     {"config", "config -o json"},
		"console":    {"console"},
		"doctor":     {"doctor", "doctor -o json", "doctor --quick"},
		"completion": {"completion bash", "completion zsh", "completion fish", "completion powershell"},
		"help":       {"help", "help run"},
		"history":    {"history n -o json"},
		"ls":         {"ls", "ls -o json"},
		"migrate":    {"migrate --for 0 --from local: --to sqlite:" + t.TempDir() + "/to.db"},
		"serve":      {"serve token ci"}, // a server that loses its audit log goes on
		"schema":     {"schema sqlite", "schema postgres", "schema mysql"},
		"show":       {"show n", "show n -o json", "show nobody"},
		"version":    {"version", "version -o json", "--version"},
		"watch":      {"watch", "watch -o json"},
	}
	silent := []string{"break", "check", "init", "lab", "once", "release", "renew", "run", "wait"}

	s := sqliteStage(t)
	s.holds(longRun)
	lines := []string{"", "--help"}
	for _, verb := range newRoot(&cli{out: terminal.Stdout()}).Commands() {
		name := verb.Name()
		if _, ok := prints[name]; ok == slices.Contains(silent, name) {
			t.Errorf("verb %s is in none of the lists of this test, or in both", name)
		}
		lines = append(lines, name+" --help")
		lines = append(lines, prints[name]...)
	}
	for _, line := range lines {
		p := s.startFull(strings.Fields(line)...)
		p.wantExit(exitOutput)
		if text := p.err.String(); !strings.HasSuffix(text, "fencelock: the output could not be written: no space left on device\n") {
			t.Errorf("fencelock %s: it says %q", line, text)
		}
	}
	s.wants(0, "wait", "-w", "0", "n2") // a shell that did not get its handle cannot release the lock
}

// The command has run, so its exit code stays. A device and a link are written to; the
// report does not replace them.
func TestLostReportIsToldAndKeepsTheExitCode(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	must(t, os.Symlink("/dev/full", s.path("full")))
	for _, verb := range []string{"run n", "once n --slot hour"} {
		p := s.wants(3, append(strings.Fields(verb), "--report", "full", "--", "sh", "-c", "exit 3")...)
		p.wantLine(`"n": the report could not be written: no space left on device`)
	}
	if target, err := os.Readlink(s.path("full")); target != "/dev/full" {
		t.Errorf("the link was replaced: %q, %v", target, err)
	}

	must(t, os.Symlink("real", s.path("link")))
	s.touch("real")
	s.must("run", "n", "--report", "link", "--", "true")
	if text := s.read("real"); !json.Valid([]byte(text)) {
		t.Errorf("the file that the link leads to has %q", text)
	}
	steps.Well(t, "the link was replaced", steps.ErrOf(os.Readlink(s.path("link"))))
}

func TestClosedPipeEndsAsOtherToolsEnd(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	reader, writer, err := os.Pipe()
	must(t, err)
	reader.Close()
	p := s.command("fencelock", "help")
	p.cmd.Stdout = writer
	p.begin()
	writer.Close()
	if code := p.wait(); code != 128+13 || p.err.String() != "" {
		t.Errorf("exit %d, want the end by SIGPIPE, and no word: %s", code, p.err.String())
	}
}

// Names and notes are chosen by others: what a terminal would not show, or would show in
// another order, is escaped wherever it is printed.
func TestHiddenCharactersAreEscaped(t *testing.T) {
	t.Parallel()
	s := sqliteStage(t)
	const rlo, filler, tag, c1 = "\u202e", "\u3164", "\U000e0041", "\u009b"
	name := "a" + rlo + "b" + filler + "c" + tag + "d" + c1
	holder := s.start("fencelock", "run", name, "--note", name, "--report", "report.json", "--", "sh", "-c", "echo $$ >pid; exec sleep 100")
	s.pid("pid")
	watchText := s.start("fencelock", "watch")
	watchJSON := s.start("fencelock", "watch", "-o", "json")
	for _, p := range []*proc{watchText, watchJSON} {
		eventually(t, "the holder is shown", func() bool { return strings.Contains(p.out.String(), "\n") })
	}
	_, refused := s.run("fencelock", "run", "-n", name, "--", "true")
	holder.signal("TERM")
	holder.wait()
	for what, text := range map[string]string{
		"ls": s.must("ls"), "ls -o json": s.must("ls", "-o", "json"), "show -o json": s.must("show", name, "-o", "json"),
		"watch": watchText.out.String(), "watch -o json": watchJSON.out.String(),
		"the report": s.read("report.json"), "a refusal": refused.err.String(), "the end": holder.err.String(),
	} {
		if i := strings.IndexFunc(text, func(r rune) bool { return strings.ContainsRune(rlo+filler+tag+c1, r) }); i >= 0 {
			t.Errorf("%s has %q", what, text)
		}
	}
	var v lineView
	if line, _, _ := strings.Cut(watchJSON.out.String(), "\n"); json.Unmarshal([]byte(line), &v) != nil || v.Name != name {
		t.Errorf("the JSON says the name is %q, not %q", v.Name, name)
	}
	if !strings.Contains(watchJSON.out.String(), `\u202e`) {
		t.Errorf("U+202E is not written as an escape: %q", watchJSON.out.String())
	}
}

// fencelock serve keeps the slot of once in the note of the claim.
func TestSlotOfOnceOverHTTPIsShownAsASlot(t *testing.T) {
	at := time.Date(2026, 11, 20, 20, 0, 0, 0, time.UTC)
	claims := func(notes ...note.Note) (l fencelock.Line) {
		for _, n := range notes {
			l.Claims = append(l.Claims, fencelock.Standing{Granted: true, Owner: "alice", Note: n.String(), Since: at})
		}
		return l
	}
	l := claims(note.Note{Slot: &at, Text: "nightly"}, note.Note{Slot: &time.Time{}}, note.Note{Text: "by hand"})
	var text strings.Builder
	must(t, showLine(&text, l))
	for _, want := range []string{" slot 2026-11-20T20:00:00Z: nightly\n", " slot ever\n", " by hand\n"} {
		if !strings.Contains(text.String(), want) || strings.Contains(text.String(), "slot=") {
			t.Errorf("%q is missing, or a raw note is shown: %s", want, &text)
		}
	}
	for i, want := range [][2]string{{"2026-11-20T20:00:00Z", "nightly"}, {"ever", ""}, {"", "by hand"}} {
		if c := viewOf(l).Holders[i]; c.Slot != want[0] || c.Note != want[1] {
			t.Errorf("as JSON: %+v; want %q", c, want)
		}
		e := grantOf(history.Entry{Note: l.Claims[i].Note}, at)
		if e.Slot != want[0] || e.Note != want[1] {
			t.Errorf("in the history: %+v; want %q", e, want)
		}
	}
}
