package fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
)

// HandlerOptions change what a [Handler] does. Nil and the zero value are ready.
type HandlerOptions struct {
	// MaxBody limits the body of a request, in bytes; 1 MiB if zero.
	MaxBody int64

	// Failed is called when marks failed with an error other than ErrStale, and the
	// response was 503. If Failed is nil, the error goes to slog.Default.
	Failed func(r *http.Request, err error)
}

// Handler lets requests through to next only if their token, in the header
// Fencing-Token, is not smaller than one that marks has let in before for the same
// resource. While next serves a request, no other request for that resource is
// served. [TokenFrom] finds the token in the context of next's request.
//
// resource returns the name of what the request writes to, and of what the lock is for,
// such as "orders/42". It must not be an address that can be spelt in two ways. Requests
// that change nothing (GET, HEAD, OPTIONS, TRACE) go to next as they are. Other requests
// are refused:
//
//   - without a token: 428 Precondition Required
//   - with two, or one that is not a whole number from 1: 400 Bad Request
//   - with a stale token: 412 Precondition Failed
//   - with a body longer than MaxBody: 413 Content Too Large
//   - if marks failed, before or after next ran: 503 Service Unavailable. The write may
//     have happened or not. The request may be sent again with the same token.
//   - if resource returns "", which is an error in the program: 500
//
// Each of these responses is a problem of RFC 9457, as application/problem+json. The
// first three have types of their own, by which [CheckResponse] recognises them. The
// response for a stale token has the members resource, token and seen.
//
// A slow client cannot keep a resource shut: Handler reads the whole body before it
// compares the token, and sends the response of next after it lets other requests in
// again. Therefore next cannot stream, hijack the connection, or send trailers. A
// response of next with a status of 400 or more counts as a write that did not happen:
// [Table.Marks] rolls it back.
func Handler(next http.Handler, marks Marks, resource func(*http.Request) string, o *HandlerOptions) http.Handler {
	h := &handler{next: next, marks: marks, resource: resource}
	if o != nil {
		h.HandlerOptions = *o
	}
	if h.MaxBody <= 0 {
		h.MaxBody = 1 << 20
	}
	if h.Failed == nil {
		h.Failed = func(r *http.Request, err error) {
			const message = "a guarded request failed"
			slog.ErrorContext(r.Context(), message, "method", r.Method, "path", r.URL.Path, "error", err)
		}
	}
	return h
}

type handler struct {
	HandlerOptions
	next     http.Handler
	marks    Marks
	resource func(*http.Request) string
}

// errRefused says that next answered with an error.
var errRefused = errors.New("fence: the handler refused the request")

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if harmless(r.Method) {
		h.next.ServeHTTP(w, r)
		return
	}
	token, p := tokenOf(r)
	if p != nil {
		p.write(w)
		return
	}
	resource := h.resource(r)
	if resource == "" {
		h.Failed(r, errors.New("fence: the resource of the request has no name: "+
			"the function given to fence.Handler returned nothing"))
		blank(http.StatusInternalServerError, "").write(w)
		return
	}
	body, p := h.read(w, r)
	if p != nil {
		p.write(w)
		return
	}

	held := &answer{header: w.Header().Clone()}
	err := h.marks.Do(r.Context(), resource, token, func(ctx context.Context) error {
		r := r.WithContext(WithToken(ctx, token))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		h.next.ServeHTTP(held, r)
		if held.status >= 400 {
			return errRefused
		}
		return nil
	})
	switch {
	case err == nil, errors.Is(err, errRefused):
		held.send(w)
	case errors.Is(err, ErrStale):
		stale(resource, token, err).write(w)
	default:
		if r.Context().Err() != context.Canceled { // else the client has gone
			h.Failed(r, err)
		}
		w.Header().Set("Retry-After", "1")
		blank(http.StatusServiceUnavailable, "The fencing token could not be compared, or the write not be kept. "+
			"It may be sent again with the same token.").write(w)
	}
}

// tokenOf reads the header, or says what is wrong with it.
func tokenOf(r *http.Request) (Token, *problem) {
	values := r.Header.Values(Header)
	if len(values) == 0 {
		return 0, &problem{
			Type: problemNoToken, Title: "there is no fencing token", Status: http.StatusPreconditionRequired,
			Detail: "Writes to this resource need the header " + Header +
				" with the token of the lock under which they are made.",
		}
	}
	if t, err := Parse(values[0]); err == nil && t > 0 && len(values) == 1 {
		return t, nil
	}
	return 0, &problem{
		Type: problemNoToken, Title: "the fencing token cannot be read", Status: http.StatusBadRequest,
		Detail: fmt.Sprintf("The header %s is %.40q; want it once, with a whole number from 1 to 9223372036854775807.",
			Header, values),
	}
}

// read reads the whole body, so that a slow client does not keep the resource shut.
func (h *handler) read(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.MaxBody))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return nil, blank(http.StatusRequestEntityTooLarge,
			fmt.Sprintf("The body of a guarded request may have %d bytes.", long.Limit))
	case err != nil:
		return nil, blank(http.StatusBadRequest, "The body of the request ended before it was complete.")
	}
	return body, nil
}

func stale(resource string, token Token, err error) problem {
	known := &StaleError{}
	errors.As(err, &known) // marks of others may not know what they have seen
	return problem{
		Type: problemStale, Title: "the fencing token is stale", Status: http.StatusPreconditionFailed,
		Detail:   "The lock has passed to somebody else, whose token was seen since. Take it again before writing.",
		Resource: resource, Token: token, Seen: known.Seen,
	}
}

// answer holds back what next writes.
type answer struct {
	header http.Header // as next sees it
	sent   http.Header // as it was when next wrote the status; nil before
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status != 0 || status < 200 {
		return // the first one counts; hints before it are dropped
	}
	a.status, a.sent = status, a.header.Clone()
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

func (a *answer) send(w http.ResponseWriter) {
	a.WriteHeader(http.StatusOK) // next may have written nothing
	clear(w.Header())
	maps.Copy(w.Header(), a.sent)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // a client that has gone needs no answer
}
