// Package console plays the console in a real browser.
package console

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience is how long a test waits for what must happen. It is no measurement.
const patience = time.Minute

var chromium context.Context // of the browser that all tests share

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	path, err := program()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.DisableGPU,
		chromedp.Flag("disable-lcd-text", true),
		chromedp.Env("TZ=UTC", "LANG=C.UTF-8"))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it refuses to have one as root
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, end := chromedp.NewContext(allocator)
	defer end()
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s does not start: %v\n", path, err)
		return 1
	}
	chromium = ctx
	return m.Run()
}

func program() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("chromium is missing; install it (Debian: chromium), or let scripts/servers.sh do that")
}

// browser is one tab with cookies of its own.
type browser struct {
	*testing.T
	ctx  context.Context
	base string

	mu      sync.Mutex
	trouble []string // errors of scripts, and what the policy of a page has blocked
	dialogs int
}

func newBrowser(t *testing.T, base string) *browser {
	t.Helper()
	ctx, end := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	ctx, cancel := context.WithTimeout(ctx, 10*patience)
	t.Cleanup(cancel)
	b := &browser{T: t, ctx: ctx, base: strings.TrimSuffix(base, "/")}
	check(t, chromedp.Listen(ctx, b.hear))
	b.size(1280, 800)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page says:\n%s", evaluate[string](b, "document.documentElement.innerText"))
		}
	})
	return b
}

func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.trouble = append(b.trouble, e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if e.Entry.Source == log.EntrySourceSecurity || e.Entry.Source == log.EntrySourceJavascript {
			b.trouble = append(b.trouble, e.Entry.Text)
		}
	case *page.EventJavascriptDialogOpening:
		b.dialogs++
	}
}

// quiet checks that no script has failed and nothing was blocked.
func (b *browser) quiet() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.trouble) > 0 || b.dialogs > 0 {
		b.Errorf("the browser tells of %q and %d dialogs", b.trouble, b.dialogs)
	}
	b.trouble, b.dialogs = nil, 0
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	check(b, chromedp.Do(b.ctx, steps...))
}

// open goes to an address below the base.
func (b *browser) open(path string) { b.Helper(); b.do(chromedp.Navigate(b.base + path)) }

func (b *browser) size(width, height int64) {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// scheme asks pages for light or dark colours.
func (b *browser) scheme(name string) {
	b.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
	check(b, err)
}

// withoutScripts turns the scripts of pages off.
func (b *browser) withoutScripts() {
	b.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	check(b, err)
}

// evaluate asks the page.
func evaluate[T any](b *browser, expression string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Errorf("%s: %v", expression, err)
	}
	return v
}

// await waits until an expression is true in the page, whichever page that is by then.
func (b *browser) await(what, expression string) {
	b.Helper()
	for end := time.Now().Add(patience); ; {
		v, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression))
		if err == nil && v {
			return
		}
		if time.Now().After(end) || b.ctx.Err() != nil {
			b.Fatalf("waited in vain until %s: %s is %v, %v", what, expression, v, err)
		}
		time.Sleep(20 * time.Millisecond) // real time: between two looks at the page
	}
}

// says waits until the page says these texts, in this order.
func (b *browser) says(texts ...string) {
	b.Helper()
	b.await("the page says "+strings.Join(texts, ", "), fmt.Sprintf(
		`(() => { let rest = document.querySelector("main").innerText; return %s.every((t) => {
			const i = rest.indexOf(t); rest = rest.slice(i + t.length); return i >= 0; }); })()`, javaScript(texts)))
}

// lacks checks that the page does not say a text now.
func (b *browser) lacks(text string) {
	b.Helper()
	if evaluate[bool](b, fmt.Sprintf(`document.body.innerText.includes(%q)`, text)) {
		b.Errorf("the page says %q", text)
	}
}

func javaScript(texts []string) string {
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = fmt.Sprintf("%q", t)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// keys presses keys, whatever has the focus.
func (b *browser) keys(keys string) { b.Helper(); b.do(chromedp.KeyEvent(keys)) }

// tabTo presses Tab until the element with the focus says or is named so.
func (b *browser) tabTo(text string) {
	b.Helper()
	for range 40 {
		b.keys(kb.Tab)
		if evaluate[bool](b, fmt.Sprintf(
			`(() => { const e = document.activeElement; return e.innerText.includes(%[1]q) || e.name === %[1]q; })()`, text)) {
			if !evaluate[bool](b, `getComputedStyle(document.activeElement).outlineStyle !== "none"`) {
				b.Errorf("one does not see that %q has the focus", text)
			}
			return
		}
	}
	b.Fatalf("Tab never comes to %q", text)
}

// fits checks that nothing is wider than the screen.
func (b *browser) fits(what string) {
	b.Helper()
	if over := evaluate[float64](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
		b.Errorf("%s is %v pixels wider than the screen", what, over)
	}
}
