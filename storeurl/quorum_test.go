package storeurl

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver/ballot"
)

// What the members of a quorum have agreed on is in its URL, once for all members.
func TestMembershipInAURL(t *testing.T) {
	for raw, want := range map[string]ballot.Membership{
		"redlock://a,b,c":                                                 {},
		"redlock://a,b,c/1?durable=true&db=1":                             {Durable: true},
		"redlock://a,b,c?quarantine=10m&skew=30s":                         {MaxTTL: 10 * time.Minute, Skew: 30 * time.Second},
		"redlock:redis://a,redis://b?durable=true,redis://c?durable=true": {Durable: true},
	} {
		u, err := Parse(raw, Source{})
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if got, err := u.membership(ballot.Membership{}); err != nil || got != want {
			t.Errorf("%s says %+v, %v; want %+v", raw, got, err, want)
		}
	}
	for raw, word := range map[string]string{
		"redlock://a,b,c?durable=perhaps":                                  "want true or false",
		"redlock://a,b,c?skew=-1s":                                         "want a time such as 30s",
		"redlock://a,b,c?quarantine=1m":                                    "more than twice its Skew",
		"redlock://a,b,c?quarantin=5m":                                     "unknown parameter quarantin",
		"redlock:redis://a?durable=true,redis://b,redis://c?durable=false": "two values for durable",
	} {
		if _, err := Parse(raw, Source{}); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s is answered with %v; want an error with %q", raw, err, word)
		}
	}
}
