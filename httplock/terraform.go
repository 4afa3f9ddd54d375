package httplock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencelock/fencelock"
)

// The protocol of the http backend of Terraform and OpenTofu, at statePath + the name of a
// state. Their clients show the body of a refused LOCK, and of all other answers the status.
const (
	statePath      = "/v1/terraform/"
	stateKeyPrefix = "terraform/"

	methodLock   = "LOCK"
	methodUnlock = "UNLOCK"
)

const (
	// stickyTTL is the lease of a lock without a ttl: the longest that stores take.
	stickyTTL = 366 * 24 * time.Hour

	// stateStoreTimeout is how long one request waits for the files and the store.
	stateStoreTimeout = 10 * time.Second

	// stateTries is how often a request begins again because another one was faster.
	stateTries = 5
)

// stateRequest is a request for one state.
type stateRequest struct {
	*call
	states    StateStore
	name, key string
	id        string // in the query: the lock that a write is under
	ttl       time.Duration
	wait      time.Duration
	force     bool // write whatever the lineage and the serial are
}

// serveState answers a request for the state of name. The client shows the Info of a refused
// LOCK, and of other answers nothing but the status. So LOCK is refused with Info whatever the
// reason, unless the client has a text of its own (401, 403) or shall try again (5xx).
func (s *Server) serveState(c *call, name string) (any, error) {
	body, err := s.answerState(c, name)
	var refused *stateRefused
	if err == nil || errors.Is(err, errGone) {
		return body, err
	}
	if !errors.As(err, &refused) {
		p := problemOf(err)
		status := problems[p.slug].status
		own := status >= 500 || status == http.StatusUnauthorized || status == http.StatusForbidden
		if c.Method != methodLock || own {
			return nil, p
		}
		refused = &stateRefused{map[string]any{"ID": "", "Path": stateKeyPrefix + name, "Info": p.detail}}
	}
	c.status = http.StatusLocked
	setHeader(c.w)
	writeJSON(c.w, c.status, "application/json", refused.info)
	return nil, nil
}

func (s *Server) answerState(c *call, name string) (any, error) {
	q, err := s.newStateRequest(c, name)
	if err != nil {
		return nil, err
	}
	serve, ok := map[string]func() (any, error){
		http.MethodGet: q.get, http.MethodHead: q.get, http.MethodPost: q.put, http.MethodPut: q.put,
		http.MethodDelete: q.remove, methodLock: q.lock, methodUnlock: q.unlock,
	}[c.Method]
	if !ok {
		c.w.Header().Set("Allow", "GET, POST, PUT, DELETE, LOCK, UNLOCK")
		return nil, &problem{slug: slugMethod, detail: "Use GET, POST, DELETE, LOCK or UNLOCK here."}
	}
	return serve()
}

func (s *Server) newStateRequest(c *call, name string) (*stateRequest, error) {
	q := &stateRequest{call: c, states: s.o.States, name: name, key: stateKeyPrefix + name}
	switch {
	case q.states == nil:
		return nil, &problem{slug: slugNotFound,
			detail: "This server keeps no Terraform states; start it with --terraform-state DIR."}
	case name == "":
		return nil, invalid("The name of the state is missing behind %s.", statePath)
	case len(q.key) > MaxKey:
		return nil, invalid("The name of the state has %d bytes; at most %d.", len(name), MaxKey-len(stateKeyPrefix))
	case !utf8.ValidString(name):
		return nil, invalid("The name of the state is not UTF-8.")
	}
	if c.Method == methodUnlock && c.who.may(verbBreak, q.key) == nil {
		return q, q.readQuery()
	}
	if err := c.who.may(verbAcquire, q.key); err != nil {
		return nil, err
	}
	return q, q.readQuery()
}

func (q *stateRequest) readQuery() error {
	v, err := url.ParseQuery(q.URL.RawQuery)
	if err != nil {
		return invalid("The query cannot be read.")
	}
	if err := checkQuery(v, "ID", "ttl", "wait", "force"); err != nil {
		return err
	}
	q.id = v.Get("ID")
	if q.ttl, err = queryDuration(v, "ttl", time.Second, stickyTTL); err != nil {
		return err
	}
	if q.wait, err = queryDuration(v, "wait", 0, MaxWait); err != nil {
		return err
	}
	switch v.Get("force") {
	case "", "false":
	case "true":
		q.force = true
	default:
		return invalid("The parameter force is neither true nor false.")
	}
	return nil
}

// queryDuration reads a parameter such as ttl=1h; 0 if it is not there.
func queryDuration(v url.Values, name string, least, most time.Duration) (time.Duration, error) {
	if !v.Has(name) {
		return 0, nil
	}
	d, err := time.ParseDuration(v.Get(name))
	if err != nil || d < least || d > most {
		return 0, invalid("The parameter %s is %q; want %v to %v, as in 90s or 1h.", name, v.Get(name), least, most)
	}
	return d, nil
}

// storing bounds a step in the files and in the store. A client that goes away does not end
// the step half-way.
func (c *call) storing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.Context()), stateStoreTimeout)
}

// stateView is a state's lock at one moment.
type stateView struct {
	rec     StateLock
	version string
	line    fencelock.Line
	live    bool // the record's lease holds the key
}

// look reads the record and then the line. In this order, a lease that is live has no
// successor whose record is older than version.
func (q *stateRequest) look() (*stateView, error) {
	ctx, cancel := q.storing()
	defer cancel()
	rec, version, err := q.states.Lock(ctx, q.name)
	if err != nil {
		return nil, q.fileError("read the record of", err)
	}
	v := &stateView{rec: rec, version: version}
	if rec.Handle != "" {
		_, err = q.s.locks.CheckDetached(ctx, rec.Handle)
		v.live = err == nil
		if err != nil && !isOver(err) {
			return nil, err
		}
	}
	v.line, err = q.s.locks.Line(ctx, q.key)
	return v, err
}

// isOver reports whether err says that the lock of a record has ended. A handle of another
// store is not valid here.
func isOver(err error) bool {
	return errors.Is(err, fencelock.ErrLost) || errors.Is(err, fencelock.ErrNoClaim) ||
		errors.Is(err, fencelock.ErrInvalid)
}

// fileError is an error of the StateStore as the client gets it. The audit log has all of it.
func (q *stateRequest) fileError(what string, err error) error {
	if err == nil || errors.Is(err, ErrStateChanged) {
		return err
	}
	q.audit(actState, q.key, 0, &problem{slug: slugUnavailable}, "error", err.Error())
	return &problem{slug: slugUnavailable, key: q.key, retry: 1,
		detail: fmt.Sprintf("The server cannot %s the state; its audit log says why.", what)}
}

// again calls try until no other request was faster.
func (q *stateRequest) again(try func() (any, error)) (any, error) {
	for range stateTries {
		if body, err := try(); !errors.Is(err, ErrStateChanged) {
			return body, err
		}
	}
	return nil, &problem{slug: slugUnavailable, key: q.key, retry: 1,
		detail: "Other requests for this state were faster; send this one once more."}
}

// lock answers LOCK.
func (q *stateRequest) lock() (any, error) {
	info, err := q.readInfo()
	switch {
	case err != nil:
		return nil, err
	case info.ID == "":
		return nil, invalid("The lock has no ID.")
	}
	if _, err := q.take(info, q.ttl); err != nil {
		return nil, err
	}
	return text{"application/json", string(info.raw)}, nil
}

// stateGrace is the lease of a lock until its record is written, and of a write without a lock.
const stateGrace = 30 * time.Second

// take locks the state for info, for ttl or, if that is 0, until it is unlocked.
func (q *stateRequest) take(info *lockInfo, ttl time.Duration) (*StateLock, error) {
	ctx, cancel := q.storing()
	rec, version, err := q.states.Lock(ctx, q.name)
	cancel()
	if err != nil {
		return nil, q.fileError("read the record of", err)
	}
	if rec.isFor(info, q.who) { // the answer to an earlier LOCK was lost
		if err := q.extend(&rec); err == nil || !isOver(err) {
			return &rec, err
		}
	}
	g, err := q.acquire(info)
	if err != nil {
		return q.refused(info, err)
	}
	mine := &StateLock{
		ID: info.ID, Info: info.raw, Principal: q.who.name, Handle: fencelock.Handle(g.Handle), TTL: ttl,
		Since: time.Now().UTC(), LastID: rec.LastID,
	}
	if err := q.note(mine, version); err != nil {
		q.giveUp(mine)
		if isOver(err) {
			return nil, &problem{slug: slugLost, key: q.key,
				detail: "The lock was ended by somebody else before it could be used; try again."}
		}
		return nil, err
	}
	return mine, nil
}

// isFor reports whether the record is of the lock that info asks for.
func (l *StateLock) isFor(info *lockInfo, who *principal) bool {
	return l.ID == info.ID && l.Principal == who.name && !l.Ending
}

// acquire takes the key for a short time, in which the record is written.
func (q *stateRequest) acquire(info *lockInfo) (*granted, error) {
	grace := duration(stateGrace)
	w, err := q.want(&acquireRequest{
		Key: q.key, TTL: &grace, Wait: duration(q.wait), Owner: info.owner(), Note: info.note(),
	})
	if err != nil {
		return nil, err
	}
	answer, err := q.s.serveWant(q.call, w, actLock, q.s.take)
	g, _ := answer.(*granted)
	return g, err
}

// note writes the record, and then gives the lease its length. A record of this version is
// older than the lease. Who finds a newer one looks whether the lease is still held after
// reading it, so the last holder writes the last record.
func (q *stateRequest) note(l *StateLock, version string) error {
	ctx, cancel := q.storing()
	defer cancel()
	_, err := q.again(func() (any, error) {
		err := q.states.SetLock(ctx, q.name, *l, version)
		if err == nil || !errors.Is(err, ErrStateChanged) {
			return nil, q.fileError("write the record of", err)
		}
		var readErr error
		if _, version, readErr = q.states.Lock(ctx, q.name); readErr != nil {
			return nil, q.fileError("read the record of", readErr)
		}
		if _, heldErr := q.s.locks.CheckDetached(ctx, l.Handle); heldErr != nil {
			return nil, heldErr
		}
		return nil, err
	})
	if err != nil {
		return err
	}
	return q.extend(l)
}

// extend starts the lease of a lock again.
func (q *stateRequest) extend(l *StateLock) error {
	ctx, cancel := q.storing()
	defer cancel()
	left, err := q.s.locks.RenewDetached(ctx, l.Handle, l.lease())
	if err == nil {
		q.s.held.renewed(q.who.name, string(l.Handle), time.Now().Add(left))
	}
	return err
}

// lease is how long the lock lasts in the store without a renewal.
func (l *StateLock) lease() time.Duration {
	if l.TTL == 0 {
		return stickyTTL
	}
	return l.TTL
}

// stateName finds the name of the state that r is for.
func stateName(r *http.Request) (string, bool) { return strings.CutPrefix(r.URL.Path, statePath) }
