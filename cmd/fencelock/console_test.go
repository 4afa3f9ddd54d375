//go:build unix

package main

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
)

// The link that console prints lets in one visitor.
func TestConsolePrintsALink(t *testing.T) {
	t.Parallel()
	s := newStage(t, "sqlite://"+t.TempDir()+"/locks")
	holder := s.holds(longRun)
	p := s.start("fencelock", "console")
	eventually(t, "it prints its link", func() bool { return strings.HasSuffix(p.out.String(), "\n") })
	link := strings.TrimSpace(p.out.String())
	visit := func(jar http.CookieJar) (int, string) {
		t.Helper()
		answer, err := (&http.Client{Jar: jar}).Get(link)
		must(t, err)
		defer answer.Body.Close()
		page, err := io.ReadAll(answer.Body)
		must(t, err)
		return answer.StatusCode, string(page)
	}
	jar, err := cookiejar.New(nil)
	must(t, err)
	if status, page := visit(jar); status != 200 || !strings.Contains(page, "1 key in use") {
		t.Errorf("the first visitor gets %d:\n%s", status, page)
	}
	if status, page := visit(nil); status != 403 || !strings.Contains(page, "This link has been used") {
		t.Errorf("the second visitor gets %d:\n%s", status, page)
	}
	holder.signal("KILL")
	p.signal("INT")
	p.wantExit(0)
}

func TestConsoleIsForThisHostOnly(t *testing.T) {
	t.Parallel()
	s := newStage(t, "memory:")
	for _, listen := range []string{":0", "0.0.0.0:0", "192.0.2.1:0", "nonsense"} {
		p := s.start("fencelock", "console", "--listen", listen)
		p.wantExit(exitUsage)
	}
}
