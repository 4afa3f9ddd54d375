// Package doctor_test plants what package doctor is to find: each setting in a real server
// that is set up wrong, and none in one that is set up well.
package doctor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/doctor"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/storeurl"
)

var must = steps.Must

// open opens a store for a test.
func open(t *testing.T, url string) *storeurl.Store {
	t.Helper()
	s, err := storeurl.Open(t.Context(), url)
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

// finds checks a store and wants exactly these findings, each with its severity.
func finds(t *testing.T, b driver.Backend, ttl time.Duration, want ...string) doctor.Report {
	t.Helper()
	r, err := doctor.Check(t.Context(), b, &doctor.Options{TTL: ttl, Requests: 20, For: 100 * time.Millisecond})
	must(t, err)
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Severity.String()+" "+f.Code)
		if f.Setting == "" || f.Value == "" || f.Why == "" || f.Remedy == "" {
			t.Errorf("something is missing in %+v", f)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if got, want := strings.Join(got, ", "), strings.Join(want, ", "); got != want {
		t.Errorf("found: %s\n want: %s", got, want)
		for _, f := range r.Findings {
			t.Logf("%v %s", f.Severity, f.String())
		}
	}
	return r
}
