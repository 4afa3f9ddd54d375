package storeurl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/bridge"
)

// bridgeScheme begins a URL that names two stores.
const bridgeScheme = "bridge:"

// beginsURL matches a comma that another URL may follow.
var beginsURL = regexp.MustCompile(`,([a-z0-9+]+):`)

// unfollowing are the schemes of stores without driver.Info.After.
var unfollowing = []string{"zk", "zks", "redlock"}

// parseBridge reads what follows bridge: in such a URL. The comma between the two URLs is the one
// that leaves a URL on both sides: lists of hosts have commas too.
func parseBridge(list string, from Source) (*URL, error) {
	from.shared = true
	var found []*URL
	var last error
	for _, at := range beginsURL.FindAllStringSubmatchIndex(list, -1) {
		if find(list[at[2]:at[3]]) == nil {
			continue
		}
		old, errOld := parseOld(list[:at[0]], from)
		new, errNew := Parse(list[at[0]+1:], from)
		if err := errors.Join(errOld, errNew); err != nil {
			last = err
			continue
		}
		found = append(found, old, new)
	}
	switch {
	case len(found) == 0 && last != nil:
		return nil, fmt.Errorf("the bridge URL in %s: %w", from.Name, last)
	case len(found) != 2:
		return nil, fmt.Errorf("the bridge URL in %s does not name two stores; write bridge:OLD,NEW with the URLs "+
			"of both, and percent-encode a comma in a password", from.Name)
	}
	old, new := found[0], found[1]
	if slices.Contains(unfollowing, new.Scheme) && old.format == "" {
		return nil, fmt.Errorf("the bridge URL in %s: %s cannot be the new store, because it cannot follow the "+
			"tokens of another store; it can be the old one", from.Name, new.text)
	}
	if old.format == "" && old.same(new) {
		return nil, fmt.Errorf("the bridge URL in %s names one store twice, and a lock would be held in one store "+
			"only; write the URL of the store alone", from.Name)
	}
	return &URL{
		Scheme: "bridge", scheme: find("bridge"), Members: found,
		Host: old.Host + "," + new.Host, text: "bridge from " + old.text + " to " + new.text,
	}, nil
}

// same reports whether both name one store, as far as their texts show it: a user or a parameter may make it another
// one.
func (u *URL) same(other *URL) bool {
	return !u.Private() && u.text == other.text && u.user == other.user && maps.Equal(u.settings, other.settings)
}

// checkBridge has nothing to check: parseBridge has read both URLs.
func checkBridge(*URL, *url.URL) error { return nil }

// openBridge opens both stores. Ping wants both to answer.
func openBridge(ctx context.Context, u *URL, c *Config) (*Store, error) {
	old, err := u.Members[0].Open(ctx, *c)
	if err != nil {
		return nil, err
	}
	new, err := u.Members[1].Open(ctx, *c)
	if err != nil {
		old.Close()
		return nil, err
	}
	both := []*Store{old, new}
	return &Store{
		bridged: both,
		Backend: bridge.New(old.Backend, new.Backend),
		ping: func(ctx context.Context) error {
			for i, s := range both {
				if err := ofMember(u.Members[i].text, s.Ping(ctx)); err != nil {
					return err
				}
			}
			return nil
		},
		close: func() { old.Close(); new.Close() },
	}, nil
}

// bridgeWithoutPasswords is WithoutPasswords for a URL that names two stores.
func bridgeWithoutPasswords(list string) string {
	for _, at := range beginsURL.FindAllStringSubmatchIndex(list, -1) {
		oldURL, format := cutFormat(list[:at[0]])
		_, errOld := Parse(oldURL, Source{})
		_, errNew := Parse(list[at[0]+1:], Source{})
		if errOld != nil || errNew != nil {
			continue
		}
		old, new := WithoutPasswords(oldURL), WithoutPasswords(list[at[0]+1:])
		if old == "" || new == "" {
			return ""
		}
		return strings.Join([]string{bridgeScheme + withFormat(old, format), new}, ",")
	}
	return ""
}
