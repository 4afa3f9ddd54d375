package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/internal/terminal"
	"github.com/fencelock/fencelock/lab"
)

func TestWrapKeepsToItsColumns(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want []string
	}{
		{"", 10, []string{""}},
		{"takes the lock", 20, []string{"takes the lock"}},
		{"takes the lock", 10, []string{"takes the", "lock"}},
		{"takes the lock", 9, []string{"takes the", "lock"}},
		{"1795264791914992", 7, []string{"1795264", "7919149", "92"}},
		{"a 1795264791914992", 7, []string{"a", "1795264", "7919149", "92"}},
		{"拿到锁，写入", 6, []string{"拿到", "锁，写", "入"}},
		{"拿到锁，写入", 8, []string{"拿到锁，", "写入"}},
		{"到期限时得到通知", 7, []string{"到期限", "时得到", "通知"}},
		{"执行 EXPIRE 就", 12, []string{"执行 EXPIRE", "就"}},
		{"（旧的）写", 6, []string{"（旧", "的）写"}},
		{"x → y", 4, []string{"x →", "y"}},
	} {
		got := wrap(c.text, c.most)
		if !slices.Equal(got, c.want) {
			t.Errorf("%q in %d columns: %q, want %q", c.text, c.most, got, c.want)
		}
		for _, line := range got {
			if terminal.Columns(line) > c.most {
				t.Errorf("%q is wider than %d", line, c.most)
			}
		}
	}
}

// What is shown of a run is in columns, whatever the language.
func TestRunIsShownInColumns(t *testing.T) {
	r := lab.Run{Steps: []lab.Step{
		{Actor: "A", Text: lab.Text{EN: "takes the lock", ZH: "拿到锁"}, Calls: []string{"SET lock A → OK"},
			Holds: []lab.Text{{EN: "A holds", ZH: "A 持有"}}},
		{Text: lab.Text{EN: "30s pass", ZH: "过了 30 秒"}},
		{Actor: "C", Text: lab.Text{EN: "comes and goes, and comes and goes again", ZH: "来了又走，走了又来，来了又走，走了又来"},
			Broke: []history.Rule{history.Exclusion}},
	}}
	for l, want := range map[lab.Lang]string{
		lab.English: `
   client A                        client B                        the store holds
1  takes the lock                                                  A holds
     SET lock A → OK
2  ~ 30s pass                                                      –
3                                  C: comes and goes, and comes    –
                                   and goes again
   ^^^ BROKEN I1: two are inside at once
`,
		lab.Chinese: `
   客户端 A                        客户端 B                        存储里有
1  拿到锁                                                          A 持有
     SET lock A → OK
2  ~ 过了 30 秒                                                    –
3                                  C: 来了又走，走了又来，来了又   –
                                   走，走了又来
   ^^^ 出事 I1: 两个同时持有
`,
	} {
		var b strings.Builder
		showRun(&b, r, l)
		if got := "\n" + b.String(); got != want {
			t.Errorf("%s:%s\nwant:%s", l, got, want)
		}
	}
}

func TestWhatDidNotGoAsToldIsSaid(t *testing.T) {
	e := lab.All()[3]
	var b strings.Builder
	broken := lab.Run{Violations: []history.Violation{{Rule: history.Exclusion}}}
	r := lab.Result{Ours: broken}
	if r.AsTold(e) || (lab.Result{Scheme: broken, Ours: broken}).AsTold(e) || !(lab.Result{Scheme: broken}).AsTold(e) {
		t.Error("AsTold is wrong")
	}
	steps.Must(t, showPlay(&b, e, r, lab.English))
	if want := "NOT as told: the scheme broke nothing (told: I1), fencelock broke I1.\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("got %s", b.String())
	}
}

func TestLabSpeaksTheLanguageOfTheLocale(t *testing.T) {
	for _, c := range []struct {
		asked, all, messages, lang string
		want                       lab.Lang
	}{
		{"", "", "", "", lab.English},
		{"", "", "", "zh_CN.UTF-8", lab.Chinese},
		{"", "", "zh_CN.UTF-8", "en_US.UTF-8", lab.Chinese},
		{"", "C", "", "zh_CN.UTF-8", lab.English},
		{"", "zh_TW", "en_US", "en_US", lab.Chinese},
		{"", "de_DE", "", "zh_CN", lab.English},
		{"en", "zh_CN", "", "", lab.English},
		{"zh", "", "", "", lab.Chinese},
	} {
		t.Setenv("LC_ALL", c.all)
		t.Setenv("LC_MESSAGES", c.messages)
		t.Setenv("LANG", c.lang)
		if got, err := language(c.asked); got != c.want || err != nil {
			t.Errorf("%+v: %v %v", c, got, err)
		}
	}
	var own *failure
	if _, err := language("fr"); !errors.As(err, &own) || own.code != exitUsage {
		t.Errorf("--lang fr: %v", err)
	}
}
