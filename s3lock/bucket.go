package s3lock

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync/atomic"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/escape"
	"github.com/fencelock/fencelock/internal/swapkv"
)

// bucket is the swapkv.Client of a Client.
type bucket struct {
	client  Client
	prefix  string
	applies atomic.Bool // the server has shown that it applies conditions
}

// names are without a /: an object may not be where a folder is.
var names = escape.NewTable('!', func(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
})

// longestName keeps names below what a file may have: some servers keep objects as files.
const longestName = 160

// LineName ends with a hash if the key is long.
func (b *bucket) LineName(key string) string {
	name := names.Escape(key)
	if len(name) > longestName {
		name = fmt.Sprintf("%s~%x", name[:longestName], sha256.Sum256([]byte(key)))
	}
	return b.prefix + "line/" + name
}

func (b *bucket) LeaseName(_, lease string) string { return b.prefix + "lease/" + lease }

func (b *bucket) Get(ctx context.Context, name string) (swapkv.Object, error) {
	o, err := b.client.Get(ctx, name)
	if err != nil {
		return swapkv.Object{}, b.failed(ctx, err, "read "+name, false)
	}
	if o.Date.IsZero() {
		err = driver.Permanent(fmt.Errorf(
			"s3: the server says no Date with %s, so it cannot tell when a lease ends", name))
	}
	return swapkv.Object{Version: o.ETag, Value: o.Body, Modified: o.Modified, Now: o.Date}, err
}

func (b *bucket) Put(ctx context.Context, name, etag string, body []byte) (string, error) {
	if err := b.tryConditions(ctx); err != nil {
		return "", b.failed(ctx, err, "write "+name, true)
	}
	o, err := b.client.Put(ctx, name, etag, body)
	switch {
	case lost(err):
		return "", nil
	case statusOf(err).Status == http.StatusConflict:
		return "", fmt.Errorf("s3: cannot write %s: %w: %w", name, swapkv.ErrConflict, err)
	}
	return o.ETag, b.failed(ctx, err, "write "+name, true)
}

// busySize is the least size of a document with a line, and others seldom have it: LineNames leaves them out.
const busySize = 768

// LineNames costs one request for a thousand keys.
func (b *bucket) LineNames(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		begins := names.Escape(prefix)
		begins = b.prefix + "line/" + begins[:min(len(begins), longestName)]
		for after := ""; ; {
			objects, err := b.client.List(ctx, begins, after)
			if err != nil {
				yield("", b.failed(ctx, err, "list "+begins, false))
			}
			if err != nil || len(objects) == 0 {
				return
			}
			for _, o := range objects {
				if after = o.Name; o.Size >= busySize && !yield(o.Name, nil) {
					return
				}
			}
		}
	}
}

// tryConditions has the server show, once, that it applies conditions: some ignore them, and would give a lock to
// everybody. It costs two PUTs. Only a race shows whether it applies them to requests that come at once.
func (b *bucket) tryConditions(ctx context.Context) error {
	if b.applies.Load() {
		return nil
	}
	for _, etag := range []string{`"00000000000000000000000000000000"`, "", ""} {
		_, err := b.client.Put(ctx, b.prefix+"conditions", etag, []byte(`"fencelock tries conditions here"`))
		refused := lost(err) || statusOf(err).Status == http.StatusConflict
		switch {
		case etag == "" && refused:
			b.applies.Store(true)
			return nil
		case err != nil && !refused:
			return err
		}
		if err == nil && etag != "" {
			break
		}
	}
	return driver.Permanent(errors.New("s3: this server ignores If-Match or If-None-Match on a PUT, and would give " +
		"every lock to everybody: use a server that applies them"))
}

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

// failed explains an error.
func (b *bucket) failed(ctx context.Context, err error, doing string, writes bool) error {
	if err == nil || errors.Is(err, driver.ErrRefused) || ctx.Err() != nil {
		return err
	}
	e := statusOf(err)
	err = fmt.Errorf("s3: cannot %s: %w", doing, err)
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
			"s3:ListBucket on the bucket", b.prefix)
	case e.Status == http.StatusNotImplemented || e.Status == http.StatusMethodNotAllowed:
		advice = "use a server that takes If-Match and If-None-Match on a PUT"
	case e.Status == 0 || writes && e.Status >= http.StatusInternalServerError:
		return err // nobody knows whether it took effect
	default:
		return driver.Refused(err)
	}
	return driver.Permanent(fmt.Errorf("%w: %s", err, advice))
}
