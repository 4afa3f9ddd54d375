package s3lock

// NewExact returns a backend on a server whose clock is exact.
func NewExact(client Client) *Backend { return open(client, &Options{}, 0) }
