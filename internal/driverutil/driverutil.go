// Package driverutil holds what the backends of this repository share beyond the contract.
package driverutil

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/fencelock/fencelock/driver"
)

// errOwned says that another Client or quorum has taken the backend over.
var errOwned = errors.New("the backend has an owner already: make a backend for each Client")

// Ownership implements Open for a backend. The zero value is ready.
type Ownership struct{ taken atomic.Bool }

// Take returns bad, the error of the backend's options, if it is not nil. After the first call
// that returned nil, each call returns an error.
func (o *Ownership) Take(bad error) error {
	switch {
	case bad != nil:
		return bad
	case !o.taken.CompareAndSwap(false, true):
		return errOwned
	}
	return nil
}

// Ended returns why ctx has ended, or nil. A deadline that has passed counts even before
// ctx reports it: a connection with the same deadline often fails first, and its error would
// look like an outage of the store.
func Ended(ctx context.Context) error {
	err := ctx.Err()
	if d, ok := ctx.Deadline(); err == nil && ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return err
}

// Duration is written in JSON as people write it, such as "1m30s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	parsed, err := time.ParseDuration(string(b))
	*d = Duration(parsed)
	return err
}

// InLine returns err, the result of a Renew, for a step that does not tell of a notice.
func InLine(err error) error {
	if errors.As(err, new(driver.GoneError)) && !driver.Gone(err) {
		return nil
	}
	return err
}

// Text is a string of any bytes. In JSON it is a string, or base64 if it is not UTF-8.
type Text string

type binary struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(binary{[]byte(t)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var raw binary
		err := json.Unmarshal(b, &raw)
		*t = Text(raw.Base64)
		return err
	}
	return json.Unmarshal(b, (*string)(t))
}

// Exclusive reports whether c excludes every other claim of its line.
func Exclusive(c *driver.Claim) bool { return c.Capacity == driver.RW && c.Weight == driver.RW }

// Lease is the lease that Enter starts for c: WaitTTL if there is one and c waits, else TTL.
func Lease(c *driver.Claim, granted bool) time.Duration {
	if !granted && c.WaitTTL > 0 {
		return c.WaitTTL
	}
	return c.TTL
}

// ShortID cuts a claim's ID to what may be shown.
func ShortID(id string) string {
	if len(id) > 8 {
		return id[:8]
	}
	return id
}

// RefusedForNow reports whether err is a refusal that may change.
func RefusedForNow(err error) bool {
	return errors.Is(err, driver.ErrRefused) && !errors.Is(err, driver.ErrPermanent)
}

// Unsettled returns err, the refusal of the last of several requests, for a step that an earlier
// request may have done. The result does not match driver.ErrRefused. It still matches
// driver.ErrPermanent if err does.
func Unsettled(err error) error {
	if !errors.Is(err, driver.ErrRefused) {
		return err
	}
	return &unsettledError{err}
}

type unsettledError struct{ err error }

func (e *unsettledError) Error() string { return e.err.Error() }

func (e *unsettledError) Is(target error) bool {
	return target != driver.ErrRefused && errors.Is(e.err, target)
}

func (e *unsettledError) As(target any) bool { return errors.As(e.err, target) }

// Adopted is the error for a handle whose claim another process has adopted.
var Adopted = driver.GoneError{Reason: "another process has adopted it"}

// CheckFound returns driver.ErrReused if the claim that an Enter has found by its ID has another
// capacity or weight than the Enter: a caller that wants to write alone must not get the share of a
// reader.
func CheckFound(capacity, weight, foundCapacity, foundWeight int64) error {
	if capacity != foundCapacity || weight != foundWeight {
		return driver.ErrReused
	}
	return nil
}

// CheckKind returns an error that matches driver.ErrKind, and names both kinds, if the claims in line
// have another capacity than a new claim.
func CheckKind(capacity, inLine int64) error {
	if capacity != inLine {
		return fmt.Errorf("%w: it is %s, not %s", driver.ErrKind, kindOf(inLine), kindOf(capacity))
	}
	return nil
}

func kindOf(capacity int64) string {
	if capacity == driver.RW {
		return "a mutex or a read-write lock"
	}
	return fmt.Sprintf("a semaphore of size %d", capacity)
}

// ClaimRef names one claim.
type ClaimRef struct{ Key, ID string }

// Ref returns the ClaimRef of a claim.
func Ref(key, id string) ClaimRef { return ClaimRef{key, id} }

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Each calls f with 0 to n-1, so many at once, and returns all errors joined.
func Each(n, atOnce int, f func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	room := make(chan struct{}, atOnce)
	for i := range n {
		room <- struct{}{}
		all.Go(func() {
			errs[i] = f(i)
			<-room
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
