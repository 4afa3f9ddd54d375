package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Write puts what was measured into docs/performance.md and its Chinese twin, between
// the markers there, and draws the figures. dir is the folder of the documentation. What
// this run has not measured stays as it is.
func (m *Measured) Write(dir string) error {
	drawn := map[string]bool{}
	for _, f := range figures {
		ok, err := f.draw(m.Results, filepath.Join(dir, "figures"))
		if err != nil {
			return fmt.Errorf("drawing %s: %w", f.file, err)
		}
		drawn[f.file] = ok
	}
	for _, page := range []struct {
		name string
		l    language
	}{{"performance.md", english}, {"performance.zh-CN.md", chinese}} {
		file := filepath.Join(dir, page.name)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		parts := m.sections(page.l)
		for _, f := range figures {
			if drawn[f.file] {
				parts["figure "+f.file] = fmt.Sprintf("![%s](figures/%s.svg)\n", page.l.pick(f.en, f.zh), f.file)
			}
		}
		if text, err = fill(text, parts); err != nil {
			return fmt.Errorf("%s: %w", page.name, err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sections are what stands between markers, by their names.
func (m *Measured) sections(l language) map[string]string {
	rs := results(m.Results)
	parts := map[string]string{"run": m.describe(l)}
	var text bytes.Buffer
	printTargets(&text, rs, l)
	parts["targets"] = text.String()
	text.Reset()
	printProfile(&text, rs, l)
	parts["profile"] = strings.TrimSuffix(text.String(), "\n")
	for _, t := range tables(rs) {
		name, _, _ := strings.Cut(t.part, " ")
		if name == "busy" {
			name = "held"
		}
		text.Reset()
		t.write(&text, rs, l)
		parts[name] += text.String()
	}
	for name, text := range parts {
		parts[name] = strings.TrimSuffix(text, "\n\n") + "\n"
		if !strings.HasSuffix(text, "\n") || strings.HasSuffix(parts[name], "\n\n") {
			parts[name] = strings.TrimRight(text, "\n") + "\n"
		}
	}
	parts["distance"] = distance(rs, l)
	for name, text := range parts {
		if strings.TrimSpace(text) == "" {
			delete(parts, name)
		}
	}
	return parts
}

// describe says what was measured where.
func (m *Measured) describe(l language) string {
	var all []string
	for _, name := range []string{"date", "system", "go"} {
		all = append(all, m.About[name])
	}
	all = append(all, l.pick("load average before and after ", "前后的平均负载 ")+m.About["load average"]+", "+m.About["load average at the end"])
	if p := m.About["pace, median"]; p != "" {
		all = append(all, l.pick(
			"a fixed calculation before each turn took "+m.About["pace, quickest"]+" ms at the quickest, "+p+" in the median, "+m.About["pace, slowest tenth"]+" in the slowest tenth",
			"每轮之前做一段固定的计算：最快 "+m.About["pace, quickest"]+" ms，中位数 "+p+"，最慢的十分之一 "+m.About["pace, slowest tenth"]+" 以上"))
	}
	for _, name := range []string{onRedis, onEtcd, onZooKeeper, onPostgres, onMariaDB} {
		if v := m.About[name]; v != "" {
			all = append(all, name+" "+v)
		}
	}
	var modules []string
	for name := range m.About {
		if libraries[name] {
			modules = append(modules, name+" "+m.About[name])
		}
	}
	slices.Sort(modules)
	return strings.Join(append(all, modules...), "; ") + ".\n"
}

// distance says what lies between the floor and our free lock on Redis.
func distance(rs results, l language) string {
	free := rs.part("free", 1)
	gap := free.value(ours, "p50_us") - free.value(floor, "p50_us")
	if gap != gap {
		return ""
	}
	server := free.value(ours, "server_us") - free.value(floor, "server_us")
	client := free.value(ours, "client_us") - free.value(floor, "client_us")
	core := free.value(oursMemory, "p50_us")
	return fmt.Sprintf(l.pick(
		"A free pair takes %s µs more than the floor (p50). The server's thread works %s µs more for it: two scripts that keep a line, a token and a lease, where the floor has one command and one short script. The process works %s µs more for it; the core, measured on memlock, is %s µs of that.\n",
		"空闲的一次比下限多 %s µs（p50）。服务器线程为此多做 %s µs：下限是一条命令加一个短脚本，这里是两个维护队列、token 和租约的脚本。进程多做 %s µs；其中核心（在 memlock 上测得）是 %s µs。\n"),
		short(gap), short(server), short(client), short(core))
}

// fill replaces what stands between <!-- bench NAME --> and <!-- end -->.
func fill(text []byte, parts map[string]string) ([]byte, error) {
	var out bytes.Buffer
	rest := string(text)
	for {
		before, after, found := strings.Cut(rest, "<!-- bench ")
		out.WriteString(before)
		if !found {
			return out.Bytes(), nil
		}
		name, after, found := strings.Cut(after, " -->\n")
		if !found {
			return nil, fmt.Errorf("a marker has no end")
		}
		old, after, found := strings.Cut(after, "<!-- end -->")
		if !found {
			return nil, fmt.Errorf("the part %q has no end", name)
		}
		if part, ok := parts[name]; ok {
			old = "\n" + part + "\n" // a blank line, or it is no Markdown
		}
		fmt.Fprintf(&out, "<!-- bench %s -->\n%s<!-- end -->", name, old)
		rest = after
	}
}
