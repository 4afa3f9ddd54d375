package httplock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// The types of problems. Each is served as a short text at /problems/<slug>.
const (
	slugNotAcquired     = "not-acquired"
	slugLost            = "lost"
	slugInvalid         = "invalid"
	slugInvalidHandle   = "invalid-handle"
	slugWrongKind       = "wrong-kind"
	slugReused          = "request-id-reused"
	slugSlotPassed      = "slot-passed"
	slugNoClaim         = "no-claim"
	slugForbidden       = "forbidden"
	slugUnauthenticated = "unauthenticated"
	slugTooMany         = "too-many"
	slugComeAgain       = "come-again"
	slugUnavailable     = "unavailable"
	slugRefusedForNow   = "refused-for-now"
	slugRefused         = "refused"
	slugMisdirected     = "misdirected"
	slugTooLarge        = "too-large"
	slugNotFound        = "not-found"
	slugMethod          = "method"
)

// statusGone is what logs of nginx have for a client that closed its connection.
const statusGone = 499

// kindOfProblem is what all problems with one slug have in common.
type kindOfProblem struct {
	status      int
	title, text string
}

var problems = map[string]kindOfProblem{
	slugNotAcquired: {http.StatusConflict, "The lock is held by somebody else",
		"The lock was not acquired within wait, and the claim has left the line. To try again, send a new request_id."},
	slugLost: {http.StatusGone, "The lock is not held any more",
		"The lease ran out, was released, was adopted by another process, or was ended by an operator. " +
			"Stop the work; acquire the lock again with a new request_id."},
	slugInvalid: {http.StatusBadRequest, "The request is not valid", "The detail says what to change."},
	slugInvalidHandle: {http.StatusBadRequest, "This is no handle",
		"A handle comes from acquire or once, and works at servers of the same store only."},
	slugWrongKind: {http.StatusConflict, "The key is in use as another kind of lock",
		"A key is a lock or a semaphore. Use another key, or wait until it is free."},
	slugReused: {http.StatusConflict, "The request_id is that of another request",
		"A request with this request_id is for the other of acquire and once, for another kind of lock, or for " +
			"another number of permits, and goes on. Draw a new request_id for each lock."},
	slugSlotPassed: {http.StatusConflict, "A later slot is done",
		"The slots of a key are ordered: after one is done, an earlier one cannot run any more. Nothing was run. " +
			"Whether this slot was done before is not known; done_slot is the last one that is."},
	slugNoClaim: {http.StatusNotFound, "No claim has this token", "Look at the line: the claim has ended already."},
	slugForbidden: {http.StatusForbidden, "The caller may not do this",
		"The line of the caller in the tokens file lists neither the verb nor a prefix of the key."},
	slugUnauthenticated: {http.StatusUnauthorized, "The caller is not known",
		"Send Authorization: Bearer with a token, or a client certificate."},
	slugTooMany: {http.StatusTooManyRequests, "Too many claims of one caller",
		"The caller holds, or waits for, as many locks as the server allows."},
	slugComeAgain: {http.StatusServiceUnavailable, "Come again",
		"Send the same request once more, with the same request_id: the place in line is kept for about five seconds."},
	slugUnavailable: {http.StatusServiceUnavailable, "The store does not answer",
		"The outcome is unknown. Send the same request once more, with the same request_id."},
	slugRefusedForNow: {http.StatusServiceUnavailable, "The store refuses for now",
		"The store answered and refused, as a server that is read-only or out of memory does. " +
			"The request did nothing. Send it once more later, with the same request_id."},
	slugRefused: {http.StatusServiceUnavailable, "The store refuses",
		"The store refuses what the server asks of it, and waiting does not change that: " +
			"the operator of the server has to. There is no Retry-After."},
	slugMisdirected: {http.StatusMisdirectedRequest, "Another server has to be asked",
		"The lock is kept by the server that instance names, or this server is not known by that Host name."},
	slugTooLarge: {http.StatusRequestEntityTooLarge, "The request is too large", "A body has at most 64 KiB."},
	slugNotFound: {http.StatusNotFound, "There is nothing here", "See /v1/openapi.json for what there is."},
	slugMethod:   {http.StatusMethodNotAllowed, "Wrong method", "See the Allow header."},
}

// describe serves the text about one type of problem.
func describe(slug string) (any, error) {
	kind, ok := problems[slug]
	if !ok {
		return nil, &problem{slug: slugNotFound, detail: "There is no problem type of this name."}
	}
	return text{plainText, fmt.Sprintf("%s (%d)\n\n%s\n", kind.title, kind.status, kind.text)}, nil
}

// problem is an answer that says what went wrong (RFC 9457).
type problem struct {
	slug, detail, key string
	retry             int // seconds, for Retry-After; 0 stands for none, but for come-again
	more              map[string]any
}

func (p *problem) Error() string { return p.slug + ": " + p.detail }

func (c *call) writeProblem(p *problem) int {
	kind := problems[p.slug]
	body := map[string]any{
		"type": "/problems/" + p.slug, "title": kind.title, "status": kind.status, "detail": p.detail,
	}
	if p.key != "" {
		setKey(body, p.key)
	}
	for name, value := range p.more {
		body[name] = value
	}
	h := c.w.Header()
	if p.retry > 0 || p.slug == slugComeAgain {
		h.Set("Retry-After", strconv.Itoa(p.retry))
	}
	if p.slug == slugUnauthenticated {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if p.slug == slugComeAgain && c.s.draining.Err() != nil || p.slug == slugTooLarge {
		h.Set("Connection", "close")
	}
	c.writeJSON(kind.status, "application/problem+json", body)
	return kind.status
}

func (c *call) writeJSON(status int, kind string, body any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	if err := e.Encode(body); err != nil {
		panic(err) // the types of answers can be encoded
	}
	c.w.Header().Set("Content-Type", kind)
	c.w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	c.w.WriteHeader(status)
	out := c.slow()
	_, _ = out.Write(b.Bytes())
	_ = out.Close()
}

func invalid(format string, args ...any) error {
	return &problem{slug: slugInvalid, detail: fmt.Sprintf(format, args...)}
}

// comeAgain asks for the same request once more. Its place is kept.
func comeAgain(seconds int) *problem {
	return &problem{slug: slugComeAgain, retry: seconds,
		detail: "Send this request once more, with the same request_id; the place in line is kept."}
}

// problemOf is err as a client gets it.
func problemOf(err error) *problem {
	var p *problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, driver.ErrReused):
		return reused()
	case errors.Is(err, fencelock.ErrInvalid):
		_, what, _ := strings.Cut(err.Error(), fencelock.ErrInvalid.Error()+": ")
		return &problem{slug: slugInvalid, detail: sentence(what)}
	case errors.Is(err, fencelock.ErrKind):
		_, kinds, _ := strings.Cut(err.Error(), fencelock.ErrKind.Error()+": ")
		return &problem{slug: slugWrongKind, detail: sentence(kinds)}
	case errors.Is(err, fencelock.ErrLost):
		return lost(err)
	case errors.Is(err, fencelock.ErrClosed):
		return comeAgain(1)
	}
	return storeProblem(err)
}

// storeProblem is one of the three outcomes that go with fencelock.ErrUnavailable.
func storeProblem(err error) *problem {
	switch {
	case errors.Is(err, driver.ErrPermanent):
		return &problem{slug: slugRefused,
			detail: "The store refuses, and waiting does not change that: ask the operator of this server."}
	case errors.Is(err, fencelock.ErrRefused):
		return &problem{slug: slugRefusedForNow, retry: 1,
			detail: "The store refuses for now, and this request did nothing. Send it once more."}
	}
	return unavailable()
}

func reused() *problem {
	return &problem{slug: slugReused, detail: "Another request with this request_id is for the other of acquire and " +
		"once, for another kind of lock, or for another number of permits. Draw a new request_id for each lock."}
}

func unavailable() *problem {
	return &problem{slug: slugUnavailable, retry: 1,
		detail: "The store does not answer, so the outcome is unknown. Send this request once more."}
}

// lost says why a lease ended.
func lost(err error) *problem {
	reason := err.Error()
	if _, why, ok := strings.Cut(reason, " was lost: "); ok {
		reason = why
	}
	return &problem{slug: slugLost, more: map[string]any{"reason": reason},
		detail: "Stop the work: the lock is not held any more. Acquire it again with a new request_id."}
}

// sentence begins with a capital and ends with a full stop.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}

// retryAfter is a hint in whole seconds for one who waits for something that takes d.
func retryAfter(d time.Duration) int {
	return int(min(max((d+time.Second-1)/time.Second, 1), 30))
}
