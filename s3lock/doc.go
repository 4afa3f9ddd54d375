// Package s3lock keeps locks in an S3 bucket, or in any server of that protocol that applies conditions to a PUT:
// If-Match and If-None-Match. It needs three requests of the client that the program has: see Client. The rule is
// that of package swaplock.
//
// Use it where there is a bucket and no database: for jobs that run for seconds or more. A lock takes two requests, and
// a hand-over about half a second. It has neither push nor history. A client far from the bucket may wait longer than
// others: claims join a line by swaps alone, because S3 cannot append.
//
// # Objects
//
// A key has one object under line/, a JSON document that a person can read: who holds the lock, who waits, and the last
// token. A swap is a PUT with If-Match and the ETag of the version that was read. Each version has a nonce, because an
// ETag may be a hash of the content, and the same content must not come back as the same version.
//
// A lease that has been renewed has an object of its own under lease/, which only the owner of the claim writes. So
// renewals never compete with swaps, and a holder far from the bucket keeps its lock beside a busy line. A client that
// takes the lock from a dead holder first ends that lease for good, by a PUT with If-Match: the store decides whether
// the holder has renewed it before.
//
// # Time
//
// A lease ends by the Last-Modified of its object and the Date of a later response, both the server's, so a new process
// takes a dead lock at once. They count whole seconds and may be from two servers, so a lease ends up to three
// seconds late, and never early: one second for each clock, and Options.Skew.
//
// # Errors
//
// A PUT that got no response, or a status of 500 and above, may have taken effect. After 409
// (ConditionalRequestConflict) the document shows whether it has: it counts its versions.
//
// # Requests
//
// What they cost on Amazon S3 Standard, where 1,000 PUTs cost 0.5 cents and 1,000 GETs 0.04 cents, with a TTL of 30 s:
//
//	a free lock and its release     2 PUT       1 GET       1.04 cents for 1,000
//	a holder, for an hour         360 PUT   4,320 GET       0.35 cents
//	a waiter, for an hour         360 PUT  18,720 GET       0.93 cents
//
// A longer TTL saves PUTs, a longer Options.Poll saves GETs.
//
// # Clean-up
//
// The object of a key that nobody uses any more has about 300 bytes, and stays. A DELETE may come late and then delete
// a lock that somebody has taken meanwhile, and not every server applies conditions to a DELETE. A million such objects
// cost less than a cent a month. Delete them when no program runs that uses them.
//
// Objects under lease/ are never used again once their lease has ended. A lifecycle rule may delete those that are
// older than the longest TTL, and no others:
//
//	{"Rules": [{"ID": "fencelock", "Status": "Enabled",
//	  "Filter": {"Prefix": "fencelock/lease/"}, "Expiration": {"Days": 7}}]}
//
// # Rights
//
// The policy with the least rights. Without ListBucket, S3 says 403 where an object is missing.
//
//	{"Version": "2012-10-17", "Statement": [
//	  {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": "arn:aws:s3:::BUCKET/fencelock/*"},
//	  {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::BUCKET"}
//	]}
//
// # Servers
//
// Tested are versitygw 1.8 and gofakes3 1.2, and not Amazon's. Before you trust another one, let doctor race it: some
// accept a condition and do not apply it.
//
//	fencelock doctor --race --url 's3://BUCKET/PREFIX?endpoint=https://HOST'
package s3lock
