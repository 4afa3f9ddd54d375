package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/limit"
)

type breakPage struct {
	page
	Key     string
	Claim   fencelock.Standing
	Open    bool   // the claim lingers, and the key is to be opened
	Confirm string // what to type
	Action  string // address of the form
	Back    string
	Reason  string // as typed
	Notice  string // as typed
	notice  time.Duration
	Typed   string // to confirm
	Errors  []fieldError
	Unsure  bool // whether anything was changed
}

// fieldError says what is wrong with a field of the form.
type fieldError struct{ Field, Text string }

// breaking shows the form that breaks a claim, and breaks it.
func (c *Console) breaking(v *visit) {
	key, ok := v.keyOf()
	if !ok {
		return
	}
	if !v.who.mayBreak(key) {
		v.refuse(http.StatusForbidden, "no-break")
		return
	}
	token, err := fence.Parse(v.URL.Query().Get("token"))
	if err != nil || token == 0 {
		v.refuse(http.StatusNotFound, "no-claim")
		return
	}
	ctx, cancel := context.WithTimeout(v.Context(), breakTimeout)
	defer cancel()
	l, err := c.locks.Line(ctx, key)
	if err != nil {
		v.refuse(http.StatusServiceUnavailable, trouble(err))
		return
	}
	claim, ok := claimWith(&l, token)
	if !ok {
		v.refuse(http.StatusNotFound, "no-claim")
		return
	}
	p := &breakPage{page: v.page("break.title"), Key: key, Claim: claim, Back: keyHref(key)}
	p.Confirm = shown(claim.Owner)
	p.Action = "break?" + url.Values{"key": {key}, "token": {token.String()}}.Encode()
	if claim.Owner == "" {
		p.Confirm = token.String()
	}
	// What the visitor has seen counts: a claim may have been broken with a delay since then.
	if p.Open = claim.Lingering; v.Method == http.MethodPost {
		p.Open = v.PostForm.Get("open") != ""
	}
	if p.Open {
		p.Title = say(v.lang, "break.opening")
	}
	if v.Method == http.MethodPost {
		c.breakClaim(ctx, v, p, token)
		return
	}
	v.render(http.StatusOK, "break", p)
}

// trouble names the texts for err, of a store that was asked in vain.
func trouble(err error) string {
	if errors.Is(err, fencelock.ErrRefused) {
		return "for-now"
	}
	return "unavailable"
}

func claimWith(l *fencelock.Line, token fence.Token) (fencelock.Standing, bool) {
	for _, s := range l.Claims {
		if s.HasToken(token) {
			return s, true
		}
	}
	return fencelock.Standing{}, false
}

// breakClaim does what a form asks for.
func (c *Console) breakClaim(ctx context.Context, v *visit, p *breakPage, token fence.Token) {
	p.Reason, p.Typed = strings.TrimSpace(v.PostForm.Get("reason")), strings.TrimSpace(v.PostForm.Get("confirm"))
	p.Notice = strings.TrimSpace(v.PostForm.Get("notice"))
	if p.check(v.lang); len(p.Errors) > 0 {
		v.render(http.StatusUnprocessableEntity, "break", p)
		return
	}
	how := fencelock.Break{Reason: p.Reason, Notice: p.notice} // with the delay of the lease, if it has one
	if p.Open {
		how.Delay = -1
	}
	err := c.locks.Break(ctx, p.Key, token, how)
	if c.o.Broke != nil {
		c.o.Broke(v.Request, v.who, p.Key, token, how, err)
	}
	switch {
	case err == nil:
		c.watch.Broke(p.Key, token, how)
		ctx, cancel := context.WithTimeout(v.Context(), storeTimeout)
		defer cancel()
		c.watch.Refresh(ctx)
		done := "&broken="
		switch {
		case p.Open:
			done = "&opened="
		case how.Notice > 0:
			done = "&revoked="
		}
		v.redirect(p.Back + done + token.String())
	case errors.Is(err, fencelock.ErrNoClaim):
		v.refuse(http.StatusNotFound, "no-claim")
	case errors.Is(err, fencelock.ErrInvalid) && how.Notice > 0:
		p.fail(v.lang, "notice", "err.no-notice")
		v.render(http.StatusUnprocessableEntity, "break", p)
	case errors.Is(err, fencelock.ErrInvalid):
		p.fail(v.lang, "reason", "err.invalid")
		v.render(http.StatusUnprocessableEntity, "break", p)
	case errors.Is(err, fencelock.ErrRefused):
		v.refuse(http.StatusServiceUnavailable, trouble(err))
	default:
		p.Unsure = true
		p.fail(v.lang, "reason", "err.store")
		v.render(http.StatusServiceUnavailable, "break", p)
	}
}

// check finds what is wrong with what was typed.
func (p *breakPage) check(l language) {
	switch {
	case p.Reason == "":
		p.fail(l, "reason", "err.reason")
	case len(p.Reason) > limit.Note:
		p.fail(l, "reason", "err.long", limit.Note)
	}
	if p.Notice != "" {
		var err error
		if p.notice, err = time.ParseDuration(p.Notice); err != nil || p.notice <= 0 {
			p.fail(l, "notice", "err.notice")
		}
	}
	if p.Typed != strings.TrimSpace(p.Confirm) && (p.Claim.Owner == "" || p.Typed != strings.TrimSpace(p.Claim.Owner)) {
		p.fail(l, "confirm", "err.confirm", p.Confirm)
	}
}

func (p *breakPage) fail(l language, field, id string, args ...any) {
	p.Errors = append(p.Errors, fieldError{field, say(l, id, args...)})
}
