// Package limit has the limits of the key and the texts of a claim, in bytes, and of its tokens. The core checks them,
// and so does driver.Claim.Validate.
package limit

// The limits, by what they bound.
const (
	Key   = 1024
	Owner = 256  // and a trace
	Note  = 1024 // and the reason of a break
	Mark  = 512

	Span = 65535
)
