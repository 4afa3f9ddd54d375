package s3lock

import (
	"context"
	"fmt"
	"time"
)

// Client sends requests to one bucket. AWS returns one for aws-sdk-go-v2; another library of S3 needs these three
// methods. They may be called from many goroutines at once, and return soon after ctx ends.
//
// If the server has responded with an error, the error matches *StatusError. After any other error the outcome is
// unknown.
type Client interface {
	// Get returns the object with that name. If there is none, the Object has only a Date.
	Get(ctx context.Context, name string) (Object, error)

	// Put writes an object of the type application/json if its ETag is still etag, with the header If-Match; if etag
	// is empty, only if there is no such object, with If-None-Match: *. It returns the new ETag. It never sends a
	// request twice: the second one would be refused because of the first.
	Put(ctx context.Context, name, etag string, body []byte) (Object, error)

	// List returns the first objects, in the order of their names, whose names begin with prefix and come after the
	// name after. It returns none at the end.
	List(ctx context.Context, prefix, after string) ([]Object, error)
}

// Object describes an object as a response does.
type Object struct {
	Name     string    // from List
	ETag     string    // as the server writes it, with its quotes; not from List
	Body     []byte    // from Get
	Size     int64     // from List
	Modified time.Time // from Get: the header Last-Modified
	Date     time.Time // the header Date of the response; not from List
}

// StatusError is an error of the server.
type StatusError struct {
	Status int    // of HTTP
	Code   string // of the body, such as NoSuchBucket
	Err    error  // with the text, and the server's ID of the request
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("status %d, %s: %v", e.Status, e.Code, e.Err)
}
func (e *StatusError) Unwrap() error { return e.Err }
