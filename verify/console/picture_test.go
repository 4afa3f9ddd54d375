package console

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/httplock/console"
	"github.com/fencelock/fencelock/memlock"
)

var update = flag.Bool("update", false, "write the pictures of the documentation into docs/images")

const (
	pictures   = "../../docs/images"
	maxPicture = 150 << 10
)

// scene is a day in virtual time, and the pages of a console at its end.
type scene struct {
	*testing.T
	store   *memlock.Store
	pages   *console.Console
	cookies []*http.Cookie
	shots   map[string]string // HTML by name
}

func (s *scene) client() *fencelock.Client { return newClient(s.T, s.store) }

// takes holds a lock once it is granted, for a time.
func (s *scene) takes(key, owner string, held time.Duration, options ...fencelock.Option) {
	c := s.client()
	go func() {
		lease, err := c.Lock(s.Context(), key, append(options, fencelock.Owner(owner))...)
		if err == nil {
			select {
			case <-time.After(held):
			case <-s.Context().Done():
			}
			_ = lease.Release(context.WithoutCancel(s.Context()))
		}
	}()
	synctest.Wait()
}

// request asks the console, as a browser does.
func (s *scene) request(path, language string, form url.Values) string {
	s.Helper()
	const base = "http://127.0.0.1:7533"
	r := httptest.NewRequest(http.MethodGet, base+path, nil)
	if form != nil {
		r = httptest.NewRequest(http.MethodPost, base+path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", base)
	}
	r.Header.Set("Accept-Language", language)
	for _, c := range s.cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	s.pages.ServeHTTP(w, r)
	s.cookies = append(s.cookies, w.Result().Cookies()...)
	if w.Code >= 400 {
		s.Fatalf("%s: %d\n%s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// breaks ends the claim that holds a key, by the form of the console.
func (s *scene) breaks(key, owner, reason string) {
	s.Helper()
	to := "/" + strings.ReplaceAll(find(s.T, `href="(break\?[^"]*)"`, s.request(keyPath(key), "en", nil)), "&amp;", "&")
	token := find(s.T, `name="form" value="([^"]*)"`, s.request(to, "en", nil))
	s.request(to, "en", url.Values{"form": {token}, "reason": {reason}, "confirm": {owner}})
}

func find(t *testing.T, pattern, text string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("there is no %s in\n%s", pattern, text)
	}
	return m[1]
}

const sceneKey = "deploy/production"

// play lets the day pass.
func (s *scene) play() {
	s.shots["empty"] = s.request("/", "en", nil)
	s.takes("库存/盘点", "job@worker-2/310", time.Hour, fencelock.Note("每日盘点"), fencelock.TTL(time.Minute))
	s.takes("nightly-report", "cron@batch-1/88", time.Hour, fencelock.TTL(2*time.Minute))
	for i := range 3 {
		_, err := s.client().RLock(s.Context(), "cache/prices", fencelock.Owner(fmt.Sprintf("web@web-%d/1201", i+1)))
		check(s.T, err)
	}
	_, err := s.client().Acquire(s.Context(), "licences/render", 3, 5, fencelock.Owner("render@gpu-4/7719"),
		fencelock.Note("scene 12"))
	check(s.T, err)
	for i, held := range []int{40, 95, 61, 22, 130, 75, 48, 33, 110, 64} {
		owner := fmt.Sprintf("%s@ci-%d/%d", []string{"alice", "bob", "carol"}[i%3], i%4+1, 4100+37*i)
		s.takes(sceneKey, owner, time.Duration(held)*time.Second, fencelock.Note(fmt.Sprintf("release 2.%d.0", i+4)))
		time.Sleep(50 * time.Second)
	}
	for s.busy() {
		time.Sleep(time.Second)
	}
	s.takes(sceneKey, "dave@ci-2/4470", time.Hour, fencelock.Note("release 2.14.0"), fencelock.NoRenewal(),
		fencelock.TTL(20*time.Second))
	time.Sleep(25 * time.Second)
	s.takes(sceneKey, "erin@ci-1/4507", time.Hour, fencelock.Note("release 2.14.0"))
	time.Sleep(70 * time.Second)
	s.takes(sceneKey, "alice@ci-3/4544", time.Hour, fencelock.Note("release 2.14.1"))
	time.Sleep(44 * time.Second)
	s.takes(sceneKey, "bob@ci-4/4581", time.Hour, fencelock.Note("rollback 2.13.0"))
	s.takes("db/migrate", "frank@ops-1/9", time.Hour, fencelock.Note("0042_orders"), fencelock.TTL(15*time.Second))
	time.Sleep(9 * time.Second)
	s.breaks(sceneKey, "erin@ci-1/4507", "hangs in the smoke test, asked erin")
	time.Sleep(51 * time.Second)
	s.takes(sceneKey, "carol@ci-1/4618", time.Hour)
	s.takes("db/migrate", "grace@ops-2/12", time.Hour, fencelock.Note("0043_index"), fencelock.TTL(15*time.Second))
	s.takes("import/feed", "etl@batch-2/77", time.Hour, fencelock.NoRenewal(), fencelock.TTL(26*time.Second))
	time.Sleep(19500 * time.Millisecond)
	s.shots["now"] = s.request("/", "en", nil)
	s.shots["key"] = s.request(keyPath(sceneKey), "en", nil)
	link := strings.ReplaceAll(find(s.T, `href="(break\?[^"]*)"`, s.shots["key"]), "&amp;", "&")
	s.shots["break"] = s.request("/"+link, "en", nil)
	s.shots["now-zh"] = s.request("/", "zh", nil)
	s.shots["key-zh"] = s.request(keyPath(sceneKey), "zh", nil)
	s.shots["break-zh"] = s.request("/"+link, "zh", nil)
}

// busy reports whether anybody holds the key of the scene.
func (s *scene) busy() bool {
	l, err := s.store.Line(s.Context(), sceneKey)
	check(s.T, err)
	return len(l.Claims) > 0
}

// play returns the pages of a scene by name.
func play(t *testing.T) map[string]string {
	t.Helper()
	shots := map[string]string{}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(14*time.Hour + 3*time.Minute)
		s := &scene{T: t, store: memlock.New(), shots: shots}
		s.pages = console.New(s.client(), &console.Options{Store: "redis://db-1:6379", Always: true})
		s.play()
		s.pages.Close()
	})
	return shots
}

// No page of the scene is wider than its screen. With -update the pages become the pictures of the documentation.
func TestPictures(t *testing.T) {
	shots := play(t)
	pages := http.NewServeMux()
	for name, html := range shots {
		pages.HandleFunc("/"+name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write([]byte(html))
		})
	}
	assets := console.New(newClient(t, memlock.New()), nil)
	t.Cleanup(assets.Close)
	pages.Handle("/console.css", assets)
	pages.Handle("/icon.svg", assets)
	pages.HandleFunc("/console.js", func(http.ResponseWriter, *http.Request) {}) // the scene is over
	web := httptest.NewServer(pages)
	t.Cleanup(web.Close)
	b := newBrowser(t, web.URL)
	widths := []int64{1280, 360}
	if *update {
		widths = append(widths, 960) // of the pictures
	}
	for name := range shots {
		for _, width := range widths {
			b.size(width, 400)
			for _, scheme := range []string{"light", "dark"} {
				b.scheme(scheme)
				b.open("/" + name)
				b.fits(fmt.Sprintf("%s at %d", name, width))
				if *update && kept[fmt.Sprintf("%s-%d-%s", name, width, scheme)] {
					b.picture(fmt.Sprintf("console-%s-%d-%s.png", name, width, scheme), width)
				}
			}
		}
	}
}

// kept are the pictures of the documentation.
var kept = map[string]bool{
	"now-960-light": true, "key-960-dark": true, "break-960-light": true, "now-zh-960-light": true,
}

// lastRow is where the last row of a page ends that is not too far below.
const lastRow = `Math.ceil(Math.max(...[...document.querySelectorAll("tr, figure, .footer, .buttons")].map(
	(e) => e.getBoundingClientRect().bottom + scrollY).filter((y) => y < 1000))) + 1`

// picture writes a picture of a page from its beginning.
func (b *browser) picture(name string, width int64) {
	b.Helper()
	beyond := true
	shot, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Format: page.CaptureScreenshotFormatPng, CaptureBeyondViewport: &beyond,
		Clip: &page.Viewport{Width: float64(width), Height: evaluate[float64](b, lastRow), Scale: 2},
	})
	check(b.T, err)
	data := smaller(b.T, shot.Data)
	if len(data) > maxPicture {
		b.Errorf("%s has %d bytes, want at most %d", name, len(data), maxPicture)
	}
	check(b.T, os.MkdirAll(pictures, 0o755))
	check(b.T, os.WriteFile(filepath.Join(pictures, name), data, 0o644))
}

// smaller encodes a picture with a palette of its own. A page has few colours, and its letters
// have shades of them: the rarest shades become the nearest of the others.
func smaller(t *testing.T, data []byte) []byte {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(data))
	check(t, err)
	area := img.Bounds()
	pixels := map[color.Color]int{}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			pixels[img.At(x, y)]++
		}
	}
	palette := slices.SortedFunc(maps.Keys(pixels), func(a, b color.Color) int { return cmp.Compare(pixels[b], pixels[a]) })
	small := image.NewPaletted(area, palette[:min(len(palette), 256)])
	draw.Draw(small, area, img, area.Min, draw.Src)
	var b bytes.Buffer
	check(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, small))
	return b.Bytes()
}
