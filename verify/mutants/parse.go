package mutants

import (
	"embed"
	"fmt"
	"strings"
)

// names are the text files, in the order of the table.
var names = []string{
	"core", "memory", "swap", "s3", "nats", "redis", "sql", "consensus", "quorum", "bridge", "guards", "service",
	"command",
}

//go:embed *.txt
var texts embed.FS

// Sections returns all mutants, by what they break.
func Sections() []Section {
	var all []Section
	for _, name := range names {
		text, err := texts.ReadFile(name + ".txt")
		if err != nil {
			panic(err)
		}
		heading, rest, _ := strings.Cut(string(text), "\n\n")
		s := Section{Name: strings.TrimPrefix(heading, "# ")}
		for entry := range strings.SplitSeq(strings.TrimSpace(rest), "\n\n") {
			s.Mutants = append(s.Mutants, parse(strings.Split(entry, "\n")))
		}
		all = append(all, s)
	}
	return all
}

// parse reads a mutant. It panics at what is none.
func parse(lines []string) Mutant {
	parts := map[byte][]string{}
	for _, line := range lines[2:] {
		parts[line[0]] = append(parts[line[0]], line[min(2, len(line)):])
	}
	m := Mutant{
		Name: strings.TrimPrefix(lines[0], "## "), File: lines[1],
		Old: strings.Join(parts['-'], "\n"), New: strings.Join(parts['+'], "\n"),
	}
	for _, by := range parts['>'] {
		dir, run, _ := strings.Cut(by, " ")
		m.By = append(m.By, Test{dir, run})
	}
	if len(parts['-'])+len(parts['+'])+len(parts['>']) != len(lines)-2 {
		panic(fmt.Sprintf("a line of %q begins with none of - + >", lines))
	}
	return m
}
