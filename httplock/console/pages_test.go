package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock/console"
	"github.com/fencelock/fencelock/internal/note"
)

func TestNowShowsTheLongestWaitingFirst(t *testing.T) {
	in(t, &console.Options{Store: "redis at db-1"}, func(s *site) {
		s.get("/").says("redis at db-1", "0 keys in use", "Nobody holds a lock", "fencelock run nightly")
		s.lock("backup", fencelock.Owner("carol@c"))
		s.lock("late", fencelock.Owner("bob@b"))
		s.lock("early", fencelock.Owner("alice@a"), fencelock.Note("deploy 7"))
		s.wait("early")
		time.Sleep(5 * time.Second)
		s.wait("late")
		s.wait("late")
		nextLook()
		s.get("/").says("3 keys in use", "3 claims wait",
			"early", "alice@a", "deploy 7", "1 longest 6s", "late", "bob@b", "2 longest 1s", "backup", "carol@c", "none")
		s.get("/?prefix=la").says("1 key in use", "2 claims wait", "late").lacks("early", "backup")
		s.get("/?prefix=zz").says("No key in use begins with zz")
		s.get("/?prefix=zz").want(http.StatusOK).href("key?key=zz")
	})
}

func TestNowShowsKinds(t *testing.T) {
	in(t, nil, func(s *site) {
		steps.Must(t, steps.ErrOf(s.client.Acquire(s.Context(), "pool", 3, 10)))
		for range 2 {
			steps.Must(t, steps.ErrOf(s.client.RLock(s.Context(), "report")))
		}
		s.get("/").says("pool", "3 of 10 permits", "taker", "report", "shared", "taker", "and 1 more")
		s.get("/key?key=pool").says("semaphore of 10", "holds", "3 of 10 permits")
		s.get("/key?key=report").says("2 holders", "lock", "holds", "shared", "holds", "shared")
	})
}

// httplock keeps the slot of once in the note of the claim.
func TestSlotIsShownAsASlot(t *testing.T) {
	in(t, nil, func(s *site) {
		at := time.Date(2026, 11, 20, 20, 0, 0, 0, time.UTC)
		s.lock("report", fencelock.Owner("alice@a"), fencelock.Note(note.Note{Slot: &at, Text: "nightly"}.String()))
		ever := s.lock("import", fencelock.Owner("bob@b"), fencelock.Note(note.Note{Slot: &time.Time{}}.String()))
		nextLook()
		s.get("/").says("import", "bob@b once forever", "report", "alice@a", "slot 2026-11-20 20:00:00", "nightly").lacks("slot=")
		s.get("/key?key=report").says("alice@a slot 2026-11-20 20:00:00", "nightly").lacks("slot=")
		s.get("/break?key=import&token=" + ever.Token().String()).says("bob@b once forever").lacks("slot=")
		s.get("/key?key=report&lang=zh-CN").says("时段 2026-11-20 20:00:00").lacks("slot=")
	})
}

func TestKeyShowsItsLineInOrder(t *testing.T) {
	in(t, nil, func(s *site) {
		s.get("/key?key=nightly").says("free", "none yet", "Nobody holds this key", "has seen no change")
		first := s.lock("nightly", fencelock.Owner("alice@a"), fencelock.Note("deploy 7"), fencelock.TTL(20*time.Second))
		second := s.wait("nightly", fencelock.Owner("bob@b"))
		s.wait("nightly", fencelock.Owner("carol@c"))
		nextLook()
		s.get("/key?key=nightly").says("1 holder · 2 claims wait", "Last token",
			"holds", "alice@a", "deploy 7", first.Token().String(), "1", "bob@b", "2", "carol@c",
			"History", "waits", "carol@c", "waits", "bob@b", "acquired", "alice@a")
		time.Sleep(8 * time.Second)
		steps.Must(t, first.Release(s.Context()))
		nextLook()
		(<-second).Release(s.Context())
		nextLook()
		s.get("/key?key=nightly").says("1 holder · 0 claims wait", "holds", "carol@c",
			"Waiting time of the last grants", "3 grants: median 9s, longest 10s", "Holding time of the last grants",
			"2 grants: median 9s, longest 9s",
			"acquired", "carol@c", "10s", "released", "bob@b", "9s", "1s", "acquired", "bob@b", "9s", "released", "alice@a", "<1s", "9s")
	})
}

// A key is any bytes, and the links lead to it.
func TestLinksLeadToEveryKey(t *testing.T) {
	in(t, nil, func(s *site) {
		for _, key := range []string{"a b", "../../etc/passwd", "%2f", "a&b=c", "a\xffb", "a\x00b", "键", `"><i>`, strings.Repeat("k", 1024)} {
			lease := s.lock(key, fencelock.Owner("alice@a"))
			nextLook()
			page := s.get(s.get("/").href("key?")).says("holds", "alice@a", lease.Token().String())
			s.get(page.href("break?")).says("alice@a holds this key")
			steps.Must(t, lease.Release(s.Context()))
			nextLook()
		}
	})
}

const attack = `<script>alert(1)</script>"'><img src=x onerror=alert(1)> javascript:alert(1) {{.}}`

func TestTextOfOthersIsEscaped(t *testing.T) {
	in(t, &console.Options{Store: attack, Identify: func(*http.Request, string) *console.Visitor {
		return &console.Visitor{Name: attack, Look: console.All, Break: console.All}
	}}, func(s *site) {
		s.lock(attack, fencelock.Owner(attack), fencelock.Note(attack))
		s.wait(attack, fencelock.Owner(attack), fencelock.Note(attack))
		nextLook()
		now := s.get("/").says(attack, attack, attack)
		key := s.get(now.href("key?")).says(attack, "holds", attack, attack)
		form := s.get(key.href("break?")).says(attack, attack, attack)
		again := s.request("POST", form.href("break?"), fields(form, attack, "no")).want(http.StatusUnprocessableEntity)
		if !strings.Contains(again.html, `value="&lt;script&gt;`) {
			t.Errorf("the form has lost the reason:\n%s", again.html)
		}
		s.request("POST", form.href("break?"), fields(form, attack, attack)).want(http.StatusSeeOther)
		s.get(now.href("key?")).says("broken", "reason: "+attack)
		for _, path := range []string{"/?prefix=", "/?lang=", "/key?broken=1&key="} {
			s.get(path + strings.NewReplacer(" ", "%20", "<", "%3c", `"`, "%22", "'", "%27").Replace(attack))
		}
	})
}

func TestHiddenCharactersShow(t *testing.T) {
	in(t, nil, func(s *site) {
		s.lock("pay\u202elort", fencelock.Owner("ali\u200bce"), fencelock.Note("a\nb"))
		s.get("/").says(`pay\u202elort`, `ali\u200bce`, `a\nb`)
	})
}

func TestPagesSpeakBothLanguages(t *testing.T) {
	in(t, nil, func(s *site) {
		s.header.Set("Accept-Language", "de, zh-CN;q=0.9, en;q=0.8")
		p := s.get("/").says("当前的锁", "现在没有人持有锁")
		if !strings.Contains(p.html, `<html lang="zh-CN">`) {
			t.Error("the page does not say that it is in Chinese")
		}
		s.get(p.href("?lang=en")).says("Locks now")
		s.get("/").says("Locks now") // the switch is remembered
		s.get("/key?key=x&lang=zh").says("没有人持有这个键")
		s.header.Set("Accept-Language", "en")
		s.get("/").says("当前的锁")
	})
	in(t, nil, func(s *site) { s.get("/").says("Locks now") })
}

func TestWrongAddresses(t *testing.T) {
	in(t, nil, func(s *site) {
		s.request("GET", "/nothing", nil).want(http.StatusNotFound)
		s.request("DELETE", "/", nil).want(http.StatusMethodNotAllowed)
		s.request("POST", "/", nil).want(http.StatusMethodNotAllowed)
		s.request("GET", "/sign-in", nil).want(http.StatusMethodNotAllowed)
		s.request("GET", "/key", nil).want(http.StatusBadRequest)
		s.request("GET", "/key?key="+strings.Repeat("k", 1025), nil).want(http.StatusBadRequest)
		s.request("GET", "/open?once=x", nil).want(http.StatusNotFound)
		for _, asset := range []string{"/console.css", "/console.js", "/icon.svg"} {
			if s.get(asset).html == "" {
				t.Errorf("%s is empty", asset)
			}
		}
	})
}

// With many keys the page has the first ones and says so.
func TestManyKeys(t *testing.T) {
	in(t, nil, func(s *site) {
		for i := range 201 {
			s.lock("many/" + strings.Repeat("x", i+1))
		}
		s.get("/").says("201 keys in use", "These are the first 200")
	})
}
