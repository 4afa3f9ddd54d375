package httplock_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/httplock"
)

// tokensFor makes tokens for lines such as "name acquire,look ci/,deploy", or as they are made for a name alone, and
// returns them by name.
func tokensFor(t *testing.T, lines ...string) (*httplock.Tokens, map[string]string) {
	t.Helper()
	byName := map[string]string{}
	text := "# who may do what\n\n"
	for _, line := range lines {
		f := strings.Fields(line)
		token, made := httplock.NewToken(f[0])
		byName[f[0]] = token
		if m := strings.Fields(made); len(f) > 1 {
			made = strings.Join([]string{m[0], m[1], f[1], f[2]}, " ")
		}
		text += made + "\n"
	}
	tokens, err := httplock.ReadTokens(strings.NewReader(text))
	steps.Must(t, err)
	return tokens, byName
}

func TestTokensAllowWhatTheirLinesSay(t *testing.T) {
	inWorld(t, func(w *world) {
		tokens, of := tokensFor(t, "ci acquire ci/,deploy", "eyes look *", "ops look,break ci/", "root all *", "ma")
		s := w.server(&httplock.Options{Tokens: tokens})
		as := func(name string) *local { return s.as(of[name]) }
		s.do("POST", "/v1/acquire", `{"key":"ci/a"}`).is(t, 401, "unauthenticated")
		s.as(of["ci"]+"x").do("POST", "/v1/acquire", `{"key":"ci/a"}`).is(t, 401, "unauthenticated")
		h := as("ci").do("POST", "/v1/acquire", `{"key":"ci/a"}`).ok(t)
		as("ci").acquire("deploy-7")
		secret := as("root").acquire("secret")
		token := func(h result) string { return h.text("token") }
		breakIt := func(key, token string) string {
			return fmt.Sprintf(`{"key":%q,"token":%q,"reason":"r"}`, key, token)
		}
		for _, c := range []struct{ name, method, path, body string }{
			{"ci", "POST", "/v1/acquire", `{"key":"other"}`},
			{"ci", "POST", "/v1/once", `{"key":"other","slot":"1h"}`},
			{"ma", "POST", "/v1/acquire", `{"key":"many"}`},
			{"ma", "POST", "/v1/break", breakIt("ma/a", token(h))},
			{"ma", "GET", "/v1/line?key=ma/a", ""},
			{"ci", "GET", "/v1/line?key=ci/a", ""},
			{"ci", "GET", "/v1/lines", ""},
			{"ci", "GET", "/v1/events", ""},
			{"ci", "GET", "/metrics", ""},
			{"ci", "POST", "/v1/break", breakIt("ci/a", token(h))},
			{"ci", "POST", "/v1/release", handleOf(secret.answer)}, // it has seen the handle
			{"ci", "POST", "/v1/check", handleOf(secret.answer)},
			{"eyes", "POST", "/v1/acquire", `{"key":"ci/b"}`},
			{"eyes", "POST", "/v1/renew", handleOf(h.answer)},
			{"eyes", "POST", "/v1/break", breakIt("ci/a", token(h))},
			{"ops", "POST", "/v1/break", breakIt("secret", token(secret))},
			{"ops", "GET", "/v1/line?key=secret", ""},
			{"ops", "GET", "/v1/events?key=secret", ""},
		} {
			as(c.name).do(c.method, c.path, c.body).is(t, 403, "forbidden")
		}
		all := as("eyes").do("GET", "/v1/lines", "").ok(t)
		if lines := all.answer["lines"].([]any); len(lines) != 3 {
			t.Errorf("eyes sees %v", lines)
		}
		some := as("ops").do("GET", "/v1/lines?prefix=", "").ok(t)
		if lines := some.answer["lines"].([]any); len(lines) != 1 {
			t.Errorf("ops sees %v", lines)
		}
		as("ops").do("POST", "/v1/break", breakIt("ci/a", token(h))).ok(t)
		as("root").verb("release", secret).ok(t)
		as("ma").verb("release", as("ma").acquire("ma/a")).ok(t)
		as("eyes").do("GET", "/metrics", "").ok(t)
		for _, open := range []string{"/healthz", "/readyz", "/v1/openapi.json", "/problems/lost"} {
			s.do("GET", open, "").ok(t)
		}
		wishes(t, s, tokens, of)
	})
}

// wishes: the same wish of another principal is another claim, also under the same name.
func wishes(t *testing.T, s *local, tokens *httplock.Tokens, of map[string]string) {
	first := s.as(of["root"]).do("POST", "/v1/acquire", `{"key":"x","request_id":"wish-of-mine"}`).ok(t)
	s.as(of["ci"]).do("POST", "/v1/acquire", `{"key":"deploy","request_id":"wish-of-mine"}`).ok(t)
	again, made := httplock.NewToken("root")
	made = strings.Replace(made, "acquire  root/", "all  *", 1)
	steps.Must(t, tokens.Load(strings.NewReader(made)))
	s.as(of["root"]).verb("check", first).is(t, 401, "unauthenticated") // its line is gone
	s.as(again).do("POST", "/v1/acquire", `{"key":"x","request_id":"wish-of-mine"}`).is(t, 409, "not-acquired")
	s.as(again).verb("check", first).ok(t)
}

func TestTokensThatCannotBeRead(t *testing.T) {
	_, line := httplock.NewToken("ci")
	good := strings.Fields(line)
	tokens, err := httplock.ReadTokens(strings.NewReader(line))
	steps.Must(t, err)
	for _, bad := range []string{
		"", "# nobody", "ci", "ci " + good[1] + " all", "ci sha256:abc all *", "ci " + good[1][7:] + " all *",
		"ci " + good[1] + " everything *", "ci " + good[1] + " acquire, *", "ci " + good[1] + " all a,,b",
		line + "\n" + long(300) + " " + good[1] + " all *",
	} {
		if err := tokens.Load(strings.NewReader(bad)); err == nil || !strings.HasPrefix(err.Error(), "httplock: ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A client certificate stands for the name of a line.
func TestCertificatesStandForNames(t *testing.T) {
	inWorld(t, func(w *world) {
		tokens, err := httplock.ReadTokens(strings.NewReader("ci - acquire ci/\nweb.example - all *\n"))
		steps.Must(t, err)
		s := w.server(&httplock.Options{Tokens: tokens})
		with := func(leaf *x509.Certificate, verified bool) result {
			r := httptest.NewRequest("POST", "/v1/acquire", strings.NewReader(`{"key":"ci/a"}`))
			r.Host = "localhost"
			r.Header.Set("Content-Type", "application/json")
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
			if verified {
				r.TLS.VerifiedChains = [][]*x509.Certificate{{leaf}}
			}
			return s.serve(r)
		}
		ci := &x509.Certificate{Subject: pkix.Name{CommonName: "ci"}}
		h := with(ci, true).ok(t)
		with(ci, false).is(t, 401, "unauthenticated")
		with(&x509.Certificate{Subject: pkix.Name{CommonName: "eve"}}, true).is(t, 401, "unauthenticated")
		with(&x509.Certificate{DNSNames: []string{"web.example"}}, true).is(t, 409, "not-acquired")
		s.as("-").verb("check", h).is(t, 401, "unauthenticated") // no line has an empty hash
	})
}

func TestAuditHasEveryChange(t *testing.T) {
	inWorld(t, func(w *world) {
		var log bytes.Buffer
		tokens, of := tokensFor(t, "ci all *")
		s := w.server(&httplock.Options{Tokens: tokens, Audit: slog.New(slog.NewJSONHandler(&log, nil))})
		s.bearer = of["ci"]
		records := func() []string {
			var all []string
			for line := range strings.Lines(log.String()) {
				r := map[string]any{}
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				all = append(all, fmt.Sprintln(r["who"], r["what"], r["key"], r["result"], r["token"] != "0", r["reason"]))
			}
			log.Reset()
			return all
		}
		h := s.acquire("a\nb\x00") // nothing breaks a line of the log
		s.verb("renew", h).ok(t)   // not at this level
		s.do("POST", "/v1/acquire", `{"key":"a\nb\u0000"}`).is(t, 409, "not-acquired")
		s.do("POST", "/v1/break", marshal(map[string]string{
			"key": "a\nb\x00", "token": h.text("token"), "reason": "disk\nfull",
		})).ok(t)
		s.verb("release", h).is(t, 410, "lost")
		slot := s.do("POST", "/v1/once", `{"key":"k","slot":"1h"}`).ok(t)
		gone := s.begin("/v1/acquire", `{"key":"k","wait":"1m"}`)
		gone.cancel()
		time.Sleep(2 * time.Second)
		s.do("POST", "/v1/leave", `{"key":"k","request_id":"wish-of-mine"}`).ok(t)
		finish(s, slot).ok(t)
		want := []string{
			"ci acquire a\nb\x00 ok true <nil>\n", "ci acquire a\nb\x00 not-acquired false <nil>\n",
			"ci break a\nb\x00 ok true disk\nfull\n", "ci release a\nb\x00 lost true <nil>\n",
			"ci once k ok true <nil>\n", "ci gone k ok false <nil>\n", "ci leave k ok false <nil>\n", "ci done k ok true <nil>\n",
		}
		if got := records(); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("the records are\n%q, want\n%q", got, want)
		}
		if strings.Contains(fmt.Sprintf("%q", log.String()), h.text("handle")) {
			t.Error("the log has a handle")
		}
	})
}

// The page of a stranger that is open in a browser on this host must not use the server.
func TestPagesOfOthersAreRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.server(&httplock.Options{Hosts: []string{"Locks.example"}, Origins: []string{"https://console.example"}})
		send := func(method, host, path string, header ...string) result {
			r := httptest.NewRequest(method, path, strings.NewReader(`{"key":"k"}`))
			r.Host = host
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			return s.serve(r)
		}
		const asJSON = "application/json"
		for _, host := range []string{"evil.example", "locks.example.evil.example", "", "localhost.evil.example:7533", "*"} {
			send("POST", host, "/v1/acquire", "Content-Type", asJSON).is(t, 421, "misdirected")
			send("GET", host, "/v1/lines").is(t, 421, "misdirected")
			send("GET", host, "/nothing").is(t, 421, "misdirected")
			send("GET", host, "/").is(t, 421, "misdirected") // the console
		}
		for _, host := range []string{"localhost:7533", "127.0.0.1", "[::1]:7533", "[::1]", "10.1.2.3:80", "LOCKS.example:443"} {
			send("GET", host, "/v1/lines").ok(t)
			send("GET", host, "/").ok(t)
		}
		send("GET", "evil.example", "/healthz").ok(t) // the checks of a balancer

		for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"} {
			send("POST", "localhost", "/v1/acquire", "Content-Type", kind).is(t, 400, "invalid")
		}
		send("POST", "localhost", "/v1/acquire", "Content-Type", asJSON, "Origin", "https://evil.example").is(t, 403, "forbidden")
		send("POST", "localhost", "/v1/acquire", "Content-Type", asJSON, "Sec-Fetch-Site", "cross-site").is(t, 403, "forbidden")
		foreign := send("OPTIONS", "localhost", "/v1/acquire", "Origin", "https://evil.example")
		if foreign.status != 405 || foreign.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("a preflight of a stranger: %d %v", foreign.status, foreign.header)
		}
		asked := send("OPTIONS", "localhost", "/v1/acquire", "Origin", "https://console.example")
		if asked.status != 204 || asked.header.Get("Access-Control-Allow-Origin") != "https://console.example" ||
			!strings.Contains(asked.header.Get("Access-Control-Allow-Headers"), "Authorization") {
			t.Errorf("a preflight of the named origin: %d %v", asked.status, asked.header)
		}
		ours := send("POST", "localhost", "/v1/acquire", "Content-Type", asJSON, "Origin", "https://console.example",
			"Sec-Fetch-Site", "cross-site").ok(t)
		if ours.header.Get("Access-Control-Allow-Origin") != "https://console.example" {
			t.Errorf("its headers: %v", ours.header)
		}
	})
}

func TestOptionsThatCannotBe(t *testing.T) {
	for _, o := range []httplock.Options{
		{Origins: []string{"console.example"}}, {Advertise: "10.0.0.1:7533"}, {Peers: []string{"ftp://x"}}, {Peers: []string{""}},
	} {
		if s, err := httplock.New(nil, &o); err == nil || s != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// An operator takes a line out of the tokens file and sends SIGHUP.
func TestRevokedTokenEndsStreamsAndWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		of, lines := map[string]string{}, map[string]string{}
		for _, name := range []string{"leaver", "stays"} {
			token, line := httplock.NewToken(name)
			of[name], lines[name] = token, strings.Join(append(strings.Fields(line)[:2], "all", "*\n"), " ")
		}
		tokens, err := httplock.ReadTokens(strings.NewReader(lines["leaver"] + lines["stays"]))
		steps.Must(t, err)
		s := w.server(&httplock.Options{Tokens: tokens})
		as := func(name string) *local { return s.as(of[name]) }
		load := func(text string) {
			steps.Must(t, tokens.Load(strings.NewReader(text)))
			synctest.Wait()
		}
		as("stays").acquire("k")
		const wish = `{"key":"k","wait":"5m"}`
		gone, stays := as("leaver").begin("/v1/acquire", wish), as("stays").begin("/v1/acquire", wish)
		goneView, staysView := as("leaver").view("", ""), as("stays").view("", "")
		time.Sleep(3 * time.Second)

		load(lines["stays"])
		gone.wait(t).is(t, 401, "unauthenticated")
		stays.stillWaits(t)
		if !ended(goneView) || ended(staysView) {
			t.Errorf("the stream of the revoked token has ended: %v; the other one: %v", ended(goneView), ended(staysView))
		}
		as("leaver").do("POST", "/v1/acquire", wish).is(t, 401, "unauthenticated")

		load(strings.Replace(lines["stays"], "all *", "look other/", 1))
		stays.wait(t).is(t, 403, "forbidden")
		if ended(staysView) {
			t.Error("a stream that may go on, with fewer keys, has ended")
		}
		load(strings.Replace(lines["stays"], "all *", "acquire *", 1))
		if !ended(staysView) {
			t.Error("the stream of a principal that may not look goes on")
		}
	})
}

func ended(v *viewer) bool {
	select {
	case <-v.done:
		return true
	default:
		return false
	}
}
