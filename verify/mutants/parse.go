package mutants

import (
	"embed"
	"fmt"
	"strings"
)

// names are the text files, in the order of the table.
var names = []string{"core", "memory", "redis", "sql", "consensus", "quorum", "guards"}

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
		s, err := parse(string(text))
		if err != nil {
			panic(fmt.Sprintf("%s.txt: %v", name, err))
		}
		all = append(all, s)
	}
	return all
}

// parse reads a text: its heading, and mutants.
func parse(text string) (s Section, err error) {
	heading, rest, _ := strings.Cut(text, "\n\n")
	s.Name = strings.TrimPrefix(heading, "# ")
	for entry := range strings.SplitSeq(strings.TrimSpace(rest), "\n\n") {
		m, err := parseMutant(strings.Split(entry, "\n"))
		if err != nil {
			return s, fmt.Errorf("%w in\n%s", err, entry)
		}
		s.Mutants = append(s.Mutants, m)
	}
	return s, nil
}

func parseMutant(lines []string) (m Mutant, err error) {
	name, ok := strings.CutPrefix(lines[0], "## ")
	if !ok || len(lines) < 4 {
		return m, fmt.Errorf("no name, file, text and test")
	}
	m.Name, m.File = name, lines[1]
	parts := map[byte][]string{}
	for _, line := range lines[2:] {
		parts[line[0]] = append(parts[line[0]], line[min(2, len(line)):])
	}
	for _, by := range parts['>'] {
		dir, run, _ := strings.Cut(by, " ")
		m.By = append(m.By, Test{dir, run})
	}
	m.Old, m.New = strings.Join(parts['-'], "\n"), strings.Join(parts['+'], "\n")
	if n := len(parts['-']) + len(parts['+']) + len(parts['>']); n != len(lines)-2 {
		return m, fmt.Errorf("a line begins with none of - + >")
	}
	return m, nil
}
