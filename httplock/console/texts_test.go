package console

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/fencelock/fencelock/drivertest/steps"
)

var verb = regexp.MustCompile(`%(\[\d\])?[a-z]`)

// Every text is there in both languages, with the same values in it.
func TestTextsAreComplete(t *testing.T) {
	for id, both := range texts {
		for l, text := range both {
			if strings.TrimSpace(text) == "" {
				t.Errorf("%s is missing in %s", id, tags[l])
			}
		}
		en, zh := verb.FindAllString(both[english], -1), verb.FindAllString(both[chinese], -1)
		if len(en) != len(zh) {
			t.Errorf("%s has the values %q in English and %q in Chinese", id, en, zh)
		}
		if han := strings.ContainsFunc(both[chinese], func(r rune) bool { return unicode.Is(unicode.Han, r) }); !han && id != "history.unknown" {
			t.Errorf("%s is not in Chinese: %q", id, both[chinese])
		}
		if strings.ContainsFunc(both[english], func(r rune) bool { return unicode.Is(unicode.Han, r) }) {
			t.Errorf("%s is not in English: %q", id, both[english])
		}
	}
}

func TestAcceptLanguage(t *testing.T) {
	for header, want := range map[string]language{
		"": english, "de": english, "zh": chinese, "zh-TW,zh;q=0.9,en;q=0.8": chinese, "en-GB,en;q=0.9,zh;q=0.8": english,
		"en;q=0.1, zh;q=0.2": chinese, "zh;q=0": english, "zh;q=x,en": english, "*": english, ",;,": english, "ZH-cn": chinese,
	} {
		if got := preferred(header); got != want {
			t.Errorf("%q: %s, want %s", header, tags[got], tags[want])
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration][2]string{
		0: {"<1s", "<1 秒"}, 999 * time.Millisecond: {"<1s", "<1 秒"}, 12 * time.Second: {"12s", "12 秒"},
		185 * time.Second: {"3m05s", "3 分 05 秒"}, 127 * time.Minute: {"2h07m", "2 小时 07 分"}, 99 * time.Hour: {"4d03h", "4 天 03 小时"},
	} {
		if got := [2]string{span(english, d), span(chinese, d)}; got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// Text is readable on its ground in both colour schemes (WCAG 2: a contrast of 4.5; 3 for
// the edges of fields and bars).
func TestContrast(t *testing.T) {
	css, err := static.ReadFile("static/console.css")
	steps.Must(t, err)
	blocks := regexp.MustCompile(`:root \{([^}]*)\}`).FindAllStringSubmatch(string(css), -1)
	if len(blocks) != 2 {
		t.Fatalf("there are %d sets of colours, want a light and a dark one", len(blocks))
	}
	for i, block := range blocks {
		colours := map[string]string{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(block[1], -1) {
			colours[m[1]] = m[2]
		}
		for _, pair := range []struct {
			text, ground string
			least        float64
		}{
			{"text", "back", 7}, {"text", "raised", 7}, {"muted", "back", 4.5}, {"muted", "raised", 4.5},
			{"accent", "back", 4.5}, {"accent", "raised", 4.5}, {"on-accent", "accent", 4.5}, {"field", "back", 3}, {"accent", "track", 3},
		} {
			if got := contrast(t, colours[pair.text], colours[pair.ground]); got < pair.least {
				t.Errorf("scheme %d: %s on %s has a contrast of %.2f, want %.1f", i, pair.text, pair.ground, got, pair.least)
			}
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	l := []float64{luminance(t, a), luminance(t, b)}
	slices.Sort(l)
	return (l[1] + 0.05) / (l[0] + 0.05)
}

func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	rgb, err := strconv.ParseUint(colour, 16, 32)
	if err != nil {
		t.Fatalf("the colour %q: %v", colour, err)
	}
	part := func(shift int) float64 {
		c := float64(rgb>>shift&0xff) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*part(16) + 0.7152*part(8) + 0.0722*part(0)
}

// A holder renews after a third of its lease. The colour changes when renewals must have failed.
func TestColourOfALeaseSaysThatRenewalsFailed(t *testing.T) {
	const full = 30 * time.Second
	for rest, want := range map[time.Duration]string{
		full: "good", 20 * time.Second: "good", 10 * time.Second: "good", 9 * time.Second: "late",
		3 * time.Second: "late", 2 * time.Second: "ends", 0: "ends", -time.Second: "ends",
	} {
		if got := leaseOf(rest, full).Level; got != want {
			t.Errorf("%v of %v are left: %s, want %s", rest, full, got, want)
		}
	}
}
