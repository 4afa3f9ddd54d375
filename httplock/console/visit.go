package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
)

// visit is one request and its answer.
type visit struct {
	*http.Request
	c    *Console
	w    http.ResponseWriter
	lang language
	who  *Visitor
}

// Link lets in one visitor: who opens it first. Its browser gets a cookie for the time after.
type Link struct {
	secret, session string
	used            atomic.Bool
}

// NewLink draws a link.
func NewLink() *Link { return &Link{secret: rand.Text(), session: rand.Text() + rand.Text()} }

// Path returns where the link leads, from the root of the Console.
func (l *Link) Path() string { return "/open?once=" + l.secret }

// Names of cookies. The port belongs to them, because browsers send the cookies of one port
// of a host to its other ports.
const (
	cookieToken = "token" // what the visitor has signed in with, or the session of the link
	cookieForm  = "form"  // a secret of this browser, which forms have a hash of
	cookieLang  = "lang"
)

func cookieName(r *http.Request, kind string) string {
	name := "fencelock-" + kind
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		name += "-" + port
	}
	return name
}

func cookieOf(r *http.Request, kind string) string {
	if c, err := r.Cookie(cookieName(r, kind)); err == nil {
		return c.Value
	}
	return ""
}

// setCookie sets a cookie for the time that the browser runs; an empty value deletes it.
func setCookie(w http.ResponseWriter, r *http.Request, kind, value string) {
	c := &http.Cookie{
		Name: cookieName(r, kind), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// identify finds out who visits; nil: nobody that is known.
func (v *visit) identify() *Visitor {
	token := cookieOf(v.Request, cookieToken)
	if l := v.c.o.Link; l != nil {
		if !same(token, l.session) {
			return nil
		}
		token = ""
	}
	if v.c.o.Identify == nil {
		return &Visitor{Look: All, Break: All}
	}
	return v.c.o.Identify(v.Request, token)
}

// formToken is what the forms of this browser have in them. A page of another site cannot
// know it.
func (v *visit) formToken() string {
	secret := cookieOf(v.Request, cookieForm)
	if secret == "" {
		secret = rand.Text()
		setCookie(v.w, v.Request, cookieForm, secret)
	}
	return formTokenOf(secret)
}

func formTokenOf(secret string) string {
	sum := sha256.Sum256([]byte("fencelock console form " + secret))
	return hex.EncodeToString(sum[:])
}

func (v *visit) ownForm(token string) bool {
	secret := cookieOf(v.Request, cookieForm)
	return secret != "" && same(token, formTokenOf(secret))
}

// isLocal reports whether a Host header cannot be a name that somebody else made lead here.
func isLocal(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

// openLink lets in the first visitor.
func (c *Console) openLink(v *visit) {
	l := c.o.Link
	switch {
	case l == nil || !same(v.URL.Query().Get("once"), l.secret):
		v.refuse(http.StatusNotFound, "not-found")
	case v.Method == http.MethodHead: // a look ahead, which must not use up the link
	case !l.used.CompareAndSwap(false, true):
		v.refuse(http.StatusForbidden, "link-used")
	default:
		setCookie(v.w, v.Request, cookieToken, l.session)
		v.redirect("./")
	}
}

// redirect leads to a path beside this one. http.Redirect would lead out of a Console that is
// mounted below a prefix.
func (v *visit) redirect(to string) {
	v.w.Header().Set("Location", to)
	v.w.WriteHeader(http.StatusSeeOther)
}

// askToSignIn answers one who is not known. again says that its token was wrong.
func (v *visit) askToSignIn(again bool) {
	if v.c.o.Link != nil {
		v.refuse(http.StatusUnauthorized, "link-wanted")
		return
	}
	v.w.Header().Set("WWW-Authenticate", "Bearer")
	v.render(http.StatusUnauthorized, "sign-in", &signInPage{page: v.page("sign-in.title"), Again: again})
}

type signInPage struct {
	page
	Again bool
}

func (c *Console) signIn(v *visit) {
	token := strings.TrimSpace(v.PostForm.Get("token"))
	asks := c.o.Link == nil && c.o.Identify != nil
	if !asks || !isCookieText(token) || c.o.Identify(v.Request, token) == nil {
		v.askToSignIn(true)
		return
	}
	setCookie(v.w, v.Request, cookieToken, token)
	v.redirect("./")
}

// isCookieText reports whether a cookie can have s for its value.
func isCookieText(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`",;\`, r)
	})
}

func (c *Console) signOut(v *visit) {
	setCookie(v.w, v.Request, cookieToken, "")
	setCookie(v.w, v.Request, cookieForm, "")
	v.redirect("./")
}
