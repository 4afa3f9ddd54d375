//go:build unix

package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var updateGolden = flag.Bool("update-lab", false, "write what the lab prints to testdata/lab")

// The list, and the plays that never wait for a lease to end: what they print is the
// same each time, but for tokens and the seconds that are left.
func TestLabPrintsWhatIsInTheGoldenFiles(t *testing.T) {
	for name, args := range map[string]string{
		"list.en": "--lang en",
		"list.zh": "--lang zh",
		"02.en":   "2 --lang en",
		"02.zh":   "2 --lang zh",
		"10.en":   "10 --lang en",
		"10.zh":   "10 --lang zh",
		"12.en":   "12 --lang en",
		"12.zh":   "12 --lang zh",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := blur(newStage(t, "").must(append([]string{"lab"}, strings.Fields(args)...)...))
			golden := filepath.Join("testdata", "lab", name+".txt")
			if *updateGolden {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("fencelock lab %s prints\n%s\nand %s has\n%s", args, got, golden, want)
			}
		})
	}
}

var (
	clockToken = regexp.MustCompile(`\b1[0-9]{15}\b`)
	secondsOf  = regexp.MustCompile(`\((30|2[0-9])s\)`)
)

func blur(s string) string {
	return secondsOf.ReplaceAllString(clockToken.ReplaceAllString(s, "1000000000000000"), "(30s)")
}

// A scheme whose lease ends while one watches.
func TestLabPlaysOneScheme(t *testing.T) {
	t.Parallel()
	s := newStage(t, "redis://127.0.0.1:1") // the user's store is not asked
	before := scratch(t)
	code, p := s.run("fencelock", "lab", "4", "--lang", "en")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, p.err.String())
	}
	p.wantLine("starting a redis-server for this lab on loopback ports", "no store of yours is touched")
	for _, want := range []string{
		"4  SET NX EX, DEL\n", "DEL lock → 1", "^^^ BROKEN I1: two are inside at once", "Context() → ErrExpired", "Release → ErrLost",
		"TryLock → held by B", "As told: the scheme breaks I1, fencelock keeps what is judged.\n",
	} {
		if !strings.Contains(p.out.String(), want) {
			t.Errorf("lab 4 does not print %q:\n%s", want, p.out.String())
		}
	}
	for name := range scratch(t) {
		if !before[name] && strings.Contains(p.err.String(), name) {
			t.Errorf("%s was left behind", name)
		}
	}
}

// scratch lists the folders of labs.
func scratch(t *testing.T) map[string]bool {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(os.TempDir(), "fencelock-lab-*"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

func TestLabRefusesWhatItDoesNotKnow(t *testing.T) {
	s := newStage(t, "")
	for args, want := range map[string]string{
		"lab 0":         `there is no scheme "0"; there are 1 to 14: see fencelock lab`,
		"lab 15":        `there is no scheme "15"`,
		"lab four":      `there is no scheme "four"`,
		"lab 1 2":       "want at most one argument, the number of a scheme, and not 2",
		"lab --all 3":   `--all plays every scheme; leave out "3"`,
		"lab --lang fr": `--lang "fr": want en or zh`,
	} {
		code, p := s.run("fencelock", strings.Fields(args)...)
		if code != exitUsage || p.out.String() != "" {
			t.Errorf("%s: exit %d, %s", args, code, p.out.String())
		}
		p.wantLine(want)
	}
}

// Without a server the list is there, and a play says what to install.
func TestLabSaysWhatToInstall(t *testing.T) {
	for lang, want := range map[string]string{"en": "redis-server is not installed; on Debian and Ubuntu: apt-get install redis-server", "zh": "没有安装 redis-server"} {
		s := newStage(t, "")
		p := s.command("fencelock", "lab", "4", "--lang", lang)
		p.cmd.Env = append(p.cmd.Env, "PATH="+t.TempDir())
		if err := p.cmd.Run(); err == nil {
			t.Error("it played without a server")
		}
		close(p.done)
		if code := exitCode(p.cmd.ProcessState); code != exitConfig || p.out.String() != "" {
			t.Errorf("exit %d, %s", code, p.out.String())
		}
		p.wantLine(want)
	}
}

// An interrupted lab takes its servers and its folder with it.
func TestInterruptedLabLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, "")
	p := s.command("fencelock", "lab", "--all")
	tmp := t.TempDir()
	p.cmd.Env = append(p.cmd.Env, "TMPDIR="+tmp)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	eventually(t, "the first scheme was played", func() bool { return strings.Contains(p.out.String(), "As told") || p.ended() })
	p.signal("INT")
	if code := p.wait(); code != 130 {
		t.Errorf("exit %d: %s", code, p.err.String())
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
