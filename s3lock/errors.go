package s3lock

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fencelock/fencelock/driver"
)

// errLost says that a condition did not hold.
var errLost = &StatusError{Status: http.StatusPreconditionFailed, Code: "PreconditionFailed"}

func statusOf(err error) StatusError {
	var e *StatusError
	if errors.As(err, &e) {
		return *e
	}
	return StatusError{}
}

// lost reports whether the condition of a PUT did not hold: for If-Match, there may be no object.
func lost(err error) bool {
	e := statusOf(err)
	return e.Status == http.StatusPreconditionFailed || e.Status == http.StatusNotFound && e.Code != "NoSuchBucket"
}

// conflict reports whether another request was under way: the PUT has taken effect or not.
func conflict(err error) bool { return statusOf(err).Status == http.StatusConflict }

// failed explains an error.
func (s *store) failed(ctx context.Context, err error, doing, key string, writes bool) error {
	if err == nil || errors.Is(err, driver.ErrRefused) || ctx.Err() != nil {
		return err
	}
	e := statusOf(err)
	err = fmt.Errorf("s3: cannot %s %.80q: %w", doing, key, err)
	advice := ""
	switch {
	case e.Code == "NoSuchBucket":
		advice = "create the bucket, or name another one"
	case e.Code == "RequestTimeTooSkewed":
		advice = "set the clock of this machine"
	case e.Status == http.StatusMovedPermanently, e.Code == "AuthorizationHeaderMalformed":
		advice = "name the region of the bucket: region= in the URL, or AWS_REGION"
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		advice = fmt.Sprintf("use the right credentials, and allow s3:GetObject and s3:PutObject on %s* and "+
			"s3:ListBucket on the bucket", s.o.Prefix)
	case e.Status == http.StatusNotImplemented || e.Status == http.StatusMethodNotAllowed:
		advice = "use a server that takes If-Match and If-None-Match on a PUT"
	case e.Status == 0 || conflict(err) || writes && e.Status >= http.StatusInternalServerError:
		return err // nobody knows whether it took effect
	default:
		return driver.Refused(err)
	}
	return driver.Permanent(fmt.Errorf("%w: %s", err, advice))
}

// tryConditions has the server show, once, that it applies conditions: some ignore them, and would give a lock to
// everybody. It costs two PUTs. Only a race shows whether it applies them to requests that come at once.
func (s *store) tryConditions(ctx context.Context) error {
	s.mu.Lock()
	applies := s.applies
	s.mu.Unlock()
	if applies {
		return nil
	}
	for _, etag := range []string{`"00000000000000000000000000000000"`, "", ""} {
		_, err := s.put(ctx, s.o.Prefix+"conditions", etag, []byte(`"fencelock tries conditions here"`))
		if etag == "" && (lost(err) || conflict(err)) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.applies = true
			return nil
		}
		if err == nil && etag != "" {
			break
		}
		if err != nil && !lost(err) && !conflict(err) {
			return err
		}
	}
	return driver.Permanent(errors.New("s3: this server ignores If-Match or If-None-Match on a PUT, and would give " +
		"every lock to everybody: use a server that applies them"))
}
