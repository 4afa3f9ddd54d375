package main

import (
	"errors"
	"math"
	"strconv"
	"time"
)

// seconds is a flag: a bare number counts seconds, as with flock and sleep, and Go's
// durations are understood too. It is never negative.
type seconds struct {
	d   time.Duration
	set bool
}

func (s *seconds) Type() string { return "seconds" }

func (s *seconds) String() string {
	if s.d == 0 && !s.set {
		return ""
	}
	return s.d.String()
}

func (s *seconds) Set(text string) error {
	d, err := parseSeconds(text)
	if err != nil {
		return err
	}
	s.d, s.set = d, true
	return nil
}

var errDuration = errors.New("want seconds, as in 90 or 0.5, or a duration such as 1m30s")

func parseSeconds(text string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		// Beyond this many seconds a duration overflows.
		const most = float64(math.MaxInt64/int64(time.Second)) - 1
		switch {
		case math.IsNaN(n) || math.IsInf(n, 0):
			return 0, errDuration
		case n < 0:
			return 0, errors.New("must not be negative")
		case n > most:
			return 0, errors.New("is too long")
		}
		whole, part := math.Modf(n) // apart, or large numbers lose their last digits
		return time.Duration(whole)*time.Second + time.Duration(math.Round(part*float64(time.Second))), nil
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, errDuration
	case d < 0:
		return 0, errors.New("must not be negative")
	}
	return d, nil
}
