package fencelock

import (
	"encoding/base64"
	"hash/crc32"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// Handle is a detached lease as text: letters, digits, ".", "-" and "_", at most 512
// bytes. A program that has it can renew, release and adopt the lease. It cannot be
// guessed, because the claim's ID in it has 128 random bits; nothing else protects it.
// Treat it as a password, and keep it in a file of mode 0600.
type Handle string

// maxHandle is the length of the longest handle, in bytes.
const maxHandle = 512

// handleVersion begins every handle.
const handleVersion = "fl1"

// handle has the fields of a Handle.
type handle struct {
	ticket    driver.Ticket
	token     fence.Token // of the grant; in the span of the ticket
	uncertain bool        // an Enter of the claim may still arrive
}

// The fields of a handle, in their order. The key comes last, and the check covers the rest
// and the store.
const (
	fieldVersion = iota
	fieldCheck
	fieldID
	fieldFirst // the first token of the span
	fieldToken
	fieldSpan
	fieldCapacity
	fieldWeight
	fieldTTL // ms
	fieldUncertain
	fieldKey
	handleFields
)

func (h Handle) field(i int) string {
	fields := strings.Split(strings.TrimSpace(string(h)), ".")
	if len(fields) != handleFields {
		return ""
	}
	return fields[i]
}

func (h Handle) number(field int) int64 {
	n, _ := strconv.ParseInt(h.field(field), 36, 64)
	return n
}

// Key returns the name of the lock, or "" if h is not a handle.
func (h Handle) Key() string {
	key, _ := base64.RawURLEncoding.DecodeString(h.field(fieldKey))
	return string(key)
}

// Token returns the fencing token of the lease, or 0 if h is not a handle.
func (h Handle) Token() fence.Token { return fence.Token(h.number(fieldToken)) }

// TTL returns the TTL of the lease, or 0 if h is not a handle.
func (h Handle) TTL() time.Duration {
	return time.Duration(min(h.number(fieldTTL), int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}

func (h *handle) write(info *driver.Info) (Handle, error) {
	t := &h.ticket
	number := func(n int64) string { return strconv.FormatInt(n, 36) }
	uncertain := "0"
	if h.uncertain {
		uncertain = "1"
	}
	rest := strings.Join([]string{
		t.ID, number(t.Token), number(int64(h.token)), number(t.Span), number(t.Capacity), number(t.Weight),
		number(t.TTL.Milliseconds()), uncertain, base64.RawURLEncoding.EncodeToString([]byte(t.Key)),
	}, ".")
	text := handleVersion + "." + checkOf(info, rest) + "." + rest
	if len(text) > maxHandle {
		return "", invalid("the handle would have %d bytes, more than %d: the key is too long", len(text), maxHandle)
	}
	return Handle(text), nil
}

// read reads h, which must have been written for the store that info describes.
func (h Handle) read(info *driver.Info) (handle, error) {
	text := strings.TrimSpace(string(h))
	f := strings.Split(text, ".")
	switch {
	case len(text) > maxHandle || len(f) != handleFields:
		return handle{}, invalid("this is not a handle: one has %d parts and at most %d bytes", handleFields, maxHandle)
	case f[fieldVersion] != handleVersion:
		return handle{}, invalid("this handle is of version %s, and this program reads %s",
			printable(f[fieldVersion]), handleVersion)
	case f[fieldCheck] != checkOf(info, strings.Join(f[fieldID:], ".")):
		return handle{}, invalid("this handle is damaged, or is one of another store than %s", info.Name)
	}
	return handle{ // the check says that no field was changed
		ticket: driver.Ticket{
			Claim: driver.Claim{
				Key: h.Key(), ID: f[fieldID], Span: h.number(fieldSpan),
				Capacity: h.number(fieldCapacity), Weight: h.number(fieldWeight),
				TTL: h.TTL(), Named: true,
			},
			Token: h.number(fieldFirst), Granted: true,
		},
		token: h.Token(), uncertain: f[fieldUncertain] == "1",
	}, nil
}

// checkOf returns a check that detects a handle that was cut off, or that is of another store. It
// does not protect against forged handles.
func checkOf(info *driver.Info, rest string) string {
	sum := crc32.ChecksumIEEE([]byte(info.Name + "\x00" + info.Namespace + "\x00" + rest))
	return strconv.FormatUint(uint64(sum), 36)
}
