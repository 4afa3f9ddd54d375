package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/httplock/console"
)

// fields are those of the form on p, as a visitor fills them in.
func fields(p *page, reason, confirm string) url.Values {
	p.Helper()
	f := url.Values{"reason": {reason}, "confirm": {confirm}}
	for _, m := range regexp.MustCompile(`type="hidden" name="(\w+)" value="(\w+)"`).FindAllStringSubmatch(p.html, -1) {
		f.Set(m[1], m[2])
	}
	if len(f.Get("form")) != 64 {
		p.Fatalf("%s has no form with a token:\n%s", p.path, p.html)
	}
	return f
}

func TestBreak(t *testing.T) {
	var audit []string
	broke := func(_ *http.Request, v *console.Visitor, key string, token fence.Token, how fencelock.Break, err error) {
		audit = append(audit, fmt.Sprint(v.Name, " ", key, " ", token, " ", how.Reason, " ", err))
	}
	in(t, &console.Options{Broke: broke}, func(s *site) {
		lease := s.lock("nightly", fencelock.Owner("alice@a"))
		next := s.wait("nightly", fencelock.Owner("bob@b"))
		nextLook()
		form := s.get(s.get("/key?key=nightly").href("break?")).says("nightly", "alice@a", "alice@a holds this key")
		to := form.href("break?")
		for _, c := range []struct{ reason, confirm, says string }{
			{"", "alice@a", "Type a reason."},
			{"hangs", "", "What you typed to confirm is not alice@a."},
			{"hangs", "alice", "What you typed to confirm is not alice@a."},
			{strings.Repeat("x", 1025), "alice@a", "The reason has more than 1024 bytes."},
			{"a\x00b", "alice@a", "it must be text"},
		} {
			s.request("POST", to, fields(form, c.reason, c.confirm)).want(http.StatusUnprocessableEntity).says(c.says)
		}
		if lease.Err() != nil {
			t.Fatal("a form with errors broke the claim")
		}
		audit = nil
		done := s.request("POST", to, fields(form, "hangs since noon", " alice@a ")).want(http.StatusSeeOther)
		s.get("/"+done.header.Get("Location")).says("was broken", "holds", "bob@b", "broken reason: hangs since noon", "alice@a")
		<-lease.Context().Done()
		if cause := context.Cause(lease.Context()); !errors.Is(cause, fencelock.ErrLost) ||
			!strings.Contains(cause.Error(), "hangs since noon") {
			t.Errorf("the holder learned: %v", cause)
		}
		(<-next).Release(s.Context())
		if want := fmt.Sprint(" nightly ", lease.Token(), " hangs since noon <nil>"); len(audit) != 1 || audit[0] != want {
			t.Errorf("the audit is %q, want %q", audit, want)
		}
		s.request("POST", to, fields(form, "again", "alice@a")).want(http.StatusNotFound).says("No claim has this token")
		s.request("GET", "/break?key=nightly&token=0", nil).want(http.StatusNotFound)
	})
}

// A claim without an owner is confirmed by its token, and a waiter can be taken out of line.
func TestBreakAWaiter(t *testing.T) {
	in(t, nil, func(s *site) {
		s.lock("nightly")
		s.wait("nightly", fencelock.Owner("bob@b"))
		nextLook()
		page := s.get("/key?key=nightly")
		links := strings.Split(page.html, `href="break?`)
		form := s.get("/break?" + strings.ReplaceAll(links[2][:strings.Index(links[2], `"`)], "&amp;", "&")).
			says("bob@b waits for this key")
		s.request("POST", form.href("break?"), fields(form, "not wanted", "bob@b")).want(http.StatusSeeOther)
		s.get("/key?key=nightly").says("1 holder · 0 claims wait")
	})
}

// A claim that lingers keeps the key closed. Without an answer to the first break, or in a hurry,
// a visitor could not open it: a break changed nothing, and the page said that it was broken.
func TestOpenAKeyThatLingers(t *testing.T) {
	in(t, nil, func(s *site) {
		lease := s.lock("nightly", fencelock.Owner("alice@a"))
		next := s.wait("nightly", fencelock.Owner("bob@b"))
		nextLook()
		before := s.get(s.get("/key?key=nightly").href("break?")).says("alice@a holds this key")
		if err := s.client.Break(s.Context(), "nightly", lease.Token(), fencelock.Break{Reason: "hangs", Delay: time.Minute}); err != nil {
			t.Fatal(err)
		}
		nextLook()
		// The form of a visitor who does not know of the delay leaves the key closed.
		s.request("POST", before.href("break?"), fields(before, "again", "alice@a")).want(http.StatusSeeOther)
		form := s.get(s.get("/key?key=nightly").says("lingers", "alice@a", "Open").href("break?")).
			says("Open the key", "alice@a has left or was broken", "stays closed for another")
		s.request("POST", form.href("break?"), fields(form, "", "alice@a")).want(http.StatusUnprocessableEntity)
		done := s.request("POST", form.href("break?"), fields(form, "it is gone", "alice@a")).want(http.StatusSeeOther)
		s.get("/"+done.header.Get("Location")).says("was opened", "holds", "bob@b")
		(<-next).Release(s.Context())
	})
}

// A break without an answer may have worked: the page does not say that it has not.
func TestBreakWithoutAnAnswer(t *testing.T) {
	in(t, nil, func(s *site) {
		s.lock("nightly", fencelock.Owner("alice@a"))
		nextLook()
		form := s.get(s.get("/key?key=nightly").href("break?"))
		s.store.Next(faulty.Break, faulty.Fault{Lose: true})
		s.request("POST", form.href("break?"), fields(form, "hangs", "alice@a")).want(http.StatusServiceUnavailable).
			says("nobody knows whether the claim was broken").lacks("Nothing was changed")
	})
}

// Forms of other sites, and requests without a form of this Console, change nothing.
func TestForgedFormsAreRefused(t *testing.T) {
	in(t, nil, func(s *site) {
		lease := s.lock("nightly", fencelock.Owner("alice@a"))
		form := s.get(s.get("/key?key=nightly").href("break?"))
		to, good := form.href("break?"), fields(form, "hangs", "alice@a")
		address, err := url.Parse(base)
		steps.Must(t, err)
		forged := func(name string, form url.Values, headers ...string) {
			t.Helper()
			browser := s.jar
			s.jar, s.header = newJar(), http.Header{}
			s.jar.SetCookies(address, browser.Cookies(address))
			for i := 0; i < len(headers); i += 2 {
				s.header[headers[i]] = []string{headers[i+1]}
			}
			p := s.request("POST", to, form)
			if p.status != http.StatusForbidden || lease.Err() != nil {
				t.Errorf("%s: status %d, lease %v", name, p.status, lease.Err())
			}
			p.want(http.StatusForbidden).says("The form was refused")
			s.jar, s.header = browser, http.Header{}
		}
		forged("no token", url.Values{"reason": {"hangs"}, "confirm": {"alice@a"}})
		forged("wrong token", url.Values{"reason": {"hangs"}, "confirm": {"alice@a"}, "form": {strings.Repeat("0", 64)}})
		forged("another site", good, "Sec-Fetch-Site", "cross-site")
		forged("another port", good, "Sec-Fetch-Site", "same-site")
		forged("another origin", good, "Sec-Fetch-Site", "", "Origin", "http://127.0.0.1:9999")
		forged("no origin", good, "Sec-Fetch-Site", "", "Origin", "null")
		forged("plain text", good, "Content-Type", "text/plain")
		forged("no cookie", good, "Cookie", "")
		forged("another browser", good, "Cookie", "fencelock-form-7533=AAAAAAAAAAAAAAAAAAAAAAAAAA")
		s.request("GET", to+"&"+good.Encode(), nil)
		if lease.Err() != nil {
			t.Error("a GET broke the claim")
		}
		s.request("POST", to, good).want(http.StatusSeeOther) // what was forged is right but for that
	})
}

func TestReadOnly(t *testing.T) {
	rights := console.Visitor{Name: "ci", Look: console.All}
	in(t, &console.Options{Identify: func(*http.Request, string) *console.Visitor { v := rights; return &v }}, func(s *site) {
		lease := s.lock("nightly", fencelock.Owner("alice@a"))
		s.lock("other", fencelock.Owner("bob@b"))
		p := s.get("/key?key=nightly").says("Signed in as ci", "alice@a", "You may look at this key, but not break")
		if strings.Contains(p.html, "break?") {
			t.Error("the page offers what it does not allow")
		}
		to := "/break?key=nightly&token=" + lease.Token().String()
		s.request("GET", to, nil).want(http.StatusForbidden).says("You may not break claims of this key")
		s.request("POST", to, fields(p, "hangs", "alice@a")).want(http.StatusForbidden).says("You may not break")
		rights.Break = func(key string) bool { return key == "other" }
		s.request("POST", to, fields(p, "hangs", "alice@a")).want(http.StatusForbidden)
		if lease.Err() != nil {
			t.Error("the claim was broken without the right")
		}
		s.get("/key?key=other").href("break?")

		rights.Look = func(key string) bool { return key == "other" }
		s.get("/").says("1 key in use", "other").lacks("nightly", "alice@a")
		s.request("GET", "/key?key=nightly", nil).want(http.StatusForbidden).lacks("alice@a")
		rights.Look = nil
		s.get("/").says("You may not look at any key").lacks("other", "bob@b")
		s.request("GET", "/break?key=other&token=1", nil).want(http.StatusForbidden)
	})
}

func TestLinkWorksOnce(t *testing.T) {
	link := console.NewLink()
	in(t, &console.Options{Link: link}, func(s *site) {
		s.lock("nightly")
		s.request("GET", "/", nil).want(http.StatusUnauthorized).says("Open the link").lacks("nightly")
		s.request("GET", "/live", nil).want(http.StatusUnauthorized)
		s.request("GET", "/open?once=wrong", nil).want(http.StatusNotFound)
		s.request("HEAD", link.Path(), nil).want(http.StatusOK)
		first := s.request("GET", link.Path(), nil).want(http.StatusSeeOther)
		cookie := first.header.Get("Set-Cookie")
		for _, want := range []string{"HttpOnly", "SameSite=Strict", "fencelock-token-7533="} {
			if !strings.Contains(cookie, want) {
				t.Errorf("the cookie %q lacks %s", cookie, want)
			}
		}
		if strings.Contains(cookie, strings.TrimPrefix(link.Path(), "/open?once=")) {
			t.Error("the cookie has the secret of the link in it")
		}
		s.get("/").says("nightly")
		other := *s
		other.jar = newJar()
		other.request("GET", link.Path(), nil).want(http.StatusForbidden).says("This link has been used")
		other.request("GET", "/", nil).want(http.StatusUnauthorized)
		other.request("GET", "/", nil).want(http.StatusUnauthorized)
		s.header = http.Header{"Host": {"evil.example:7533"}}
		s.request("GET", "/", nil).want(http.StatusMisdirectedRequest).lacks("nightly")
	})
}

// A visitor gives the holder time. The key shows that, and how it ended.
func TestBreakWithNotice(t *testing.T) {
	in(t, nil, func(s *site) {
		lease := s.lock("nightly", fencelock.Owner("alice@a"))
		next := s.wait("nightly", fencelock.Owner("bob@b"))
		nextLook()
		form := s.get(s.get("/key?key=nightly").href("break?"))
		send := func(notice string) *page {
			f := fields(form, "deploy", "alice@a")
			f.Set("notice", notice)
			return s.request("POST", form.href("break?"), f)
		}
		for _, bad := range []string{"soon", "0s", "-1m", "30"} {
			send(bad).want(http.StatusUnprocessableEntity).says("The notice is not a time")
		}
		send("1000000h").want(http.StatusUnprocessableEntity).says("The store refuses this")
		done := send(" 30s ").want(http.StatusSeeOther)
		s.get("/").says("ends")
		s.get("/"+done.header.Get("Location")).says("was given notice", "ends", "deploy", "alice@a", "notice was given reason: deploy")
		select {
		case <-lease.Revoked():
		default:
			t.Fatal("the holder has not heard")
		}
		steps.Must(t, lease.Err())
		time.Sleep(31 * time.Second)
		s.get("/key?key=nightly").says("holds", "bob@b", "broken reason: deploy")
		(<-next).Release(s.Context())
		steps.Is(t, "the lease", lease.Release(s.Context()), fencelock.ErrBroken)
	})
}
