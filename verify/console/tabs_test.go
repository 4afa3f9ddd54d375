package console

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fencelock/fencelock/httplock"
)

// A visitor opens more keys in tabs than a browser has connections to one server without TLS. Only the
// tab in view keeps a request open, so each loads, and one that comes into view again is up to date.
func TestHiddenTabsLeaveTheConnectionsToOthers(t *testing.T) {
	s := serve(t, &httplock.Options{Store: "memory"})
	first := newBrowser(t, s.URL)
	tab := first
	for range 7 {
		tab.open("/")
		tab.says("Nobody holds a lock")
		tab.hide(true)
		ctx, end := chromedp.NewContext(first.ctx) // a tab of the same browser
		t.Cleanup(end)
		tab = &browser{T: t, ctx: ctx, base: first.base}
	}
	tab.open("/")
	lease := s.lock("nightly", "alice@web-1/812")
	tab.says("1 key in use", "nightly")
	first.lacks("alice")
	first.hide(false)
	first.says("1 key in use", "nightly")
	check(t, lease.Release(t.Context()))
	first.says("Nobody holds a lock")
	first.quiet()
}

// hide has the page believe that its tab is not in view, or that it is again.
func (b *browser) hide(yes bool) {
	b.Helper()
	script := `Object.defineProperty(document, "hidden", { value: VALUE, configurable: true });
		document.dispatchEvent(new Event("visibilitychange"))`
	value := "false"
	if yes {
		value = "true"
	}
	evaluate[bool](b, strings.Replace(script, "VALUE", value, 1))
}
