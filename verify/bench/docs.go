package bench

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Write puts the report into a Markdown page, between its markers. A part that this run
// has not measured stays as it is.
func (r *Report) Write(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	if text, err = fill(text, r.sections()); err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, text, 0o644)
}

// sections are the texts between the markers, by their names.
func (r *Report) sections() map[string]string {
	rs := results(r.Results)
	parts := map[string]string{"run": r.describe()}
	var text strings.Builder
	printTargets(&text, rs)
	parts["targets"] = text.String()
	for _, t := range tables(rs) {
		name, _, _ := strings.Cut(t.part, " ")
		text.Reset()
		t.write(&text, rs)
		parts[name] += text.String()
	}
	for name, text := range parts {
		parts[name] = strings.TrimRight(text, "\n") + "\n"
	}
	return parts
}

// describe says when and where the run was, and of which versions.
func (r *Report) describe() string {
	all := []string{r.About["date"], r.About["system"], r.About["go"],
		"load average before and after " + r.About["load average"] + ", " + r.About["load average at the end"]}
	if v := r.About[onRedis]; v != "" {
		all = append(all, onRedis+" "+v)
	}
	var modules []string
	for name := range r.About {
		if libraries[name] {
			modules = append(modules, name+" "+r.About[name])
		}
	}
	slices.Sort(modules)
	return strings.Join(append(all, modules...), "; ") + ".\n"
}

// fill replaces the text between each <!-- bench NAME --> and <!-- end -->.
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
