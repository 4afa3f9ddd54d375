package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Write puts what was measured into performance.md in dir, between its markers, and draws
// the figures. What this run has not measured stays as it is.
func (m *Measured) Write(dir string) error {
	drawn := map[string]bool{}
	for _, f := range figures {
		ok, err := f.draw(m.Results, filepath.Join(dir, "figures"))
		if err != nil {
			return fmt.Errorf("drawing %s: %w", f.file, err)
		}
		drawn[f.file] = ok
	}
	file := filepath.Join(dir, "performance.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	parts := m.sections()
	for _, f := range figures {
		if drawn[f.file] {
			parts["figure "+f.file] = fmt.Sprintf("![%s](figures/%s.svg)\n", f.caption, f.file)
		}
	}
	if text, err = fill(text, parts); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, text, 0o644)
}

// sections are what stands between markers, by their names.
func (m *Measured) sections() map[string]string {
	rs := results(m.Results)
	parts := map[string]string{"run": m.describe()}
	var text bytes.Buffer
	printTargets(&text, rs)
	parts["targets"] = text.String()
	for _, t := range tables(rs) {
		name, _, _ := strings.Cut(t.part, " ")
		if name == "busy" {
			name = "held"
		}
		text.Reset()
		t.write(&text, rs)
		parts[name] += text.String()
	}
	for name, text := range parts {
		parts[name] = strings.TrimSuffix(text, "\n\n") + "\n"
		if !strings.HasSuffix(text, "\n") || strings.HasSuffix(parts[name], "\n\n") {
			parts[name] = strings.TrimRight(text, "\n") + "\n"
		}
	}
	parts["distance"] = distance(rs)
	for name, text := range parts {
		if strings.TrimSpace(text) == "" {
			delete(parts, name)
		}
	}
	return parts
}

// describe says what was measured where.
func (m *Measured) describe() string {
	var all []string
	for _, name := range []string{"date", "system", "go"} {
		all = append(all, m.About[name])
	}
	all = append(all, "load average before and after "+m.About["load average"]+", "+m.About["load average at the end"])
	if p := m.About["pace, median"]; p != "" {
		all = append(all, fmt.Sprintf(
			"a fixed calculation before each turn took %s ms at best, %s in the median, %s in the slowest tenth",
			m.About["pace, quickest"], p, m.About["pace, slowest tenth"]))
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
func distance(rs results) string {
	free := rs.part("free", 1)
	gap := free.value(ours, "p50_us") - free.value(floor, "p50_us")
	if gap != gap {
		return ""
	}
	server := free.value(ours, "server_us") - free.value(floor, "server_us")
	client := free.value(ours, "client_us") - free.value(floor, "client_us")
	core := free.value(oursMemory, "p50_us")
	return fmt.Sprintf(
		"A free pair takes %s µs more than the floor (p50). The server's thread works %s µs more for it: "+
			"two scripts that keep a line, a token and a lease, where the floor has one command and one short script. "+
			"The process works %s µs more for it; the core, measured on memlock, is %s µs of that.\n",
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
