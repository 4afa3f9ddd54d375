package driver

import "time"

// Line is one line, as seen by people and by tests.
type Line struct {
	Key    string
	Last   int64 // the largest token drawn so far, 0 if none is remembered
	Mark   Mark
	Claims []Standing // live claims in order of arrival
}

// Standing is one claim as seen from outside.
type Standing struct {
	ID               string // cut to 8 characters: enough to tell claims apart, too little to leave with
	Owner, Note      string
	Capacity, Weight int64
	Token, Span      int64
	Granted          bool
	Lingering        bool      // its holder left, the place stays taken for Left
	Since            time.Time // granted since, or waiting since
	Left             time.Duration
}
