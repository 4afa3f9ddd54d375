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
	var before, after []string
	for _, line := range lines[2:] {
		rest := ""
		if len(line) > 2 {
			rest = line[2:]
		}
		switch line[0] {
		case '-':
			before = append(before, rest)
		case '+':
			after = append(after, rest)
		case '>':
			dir, run, _ := strings.Cut(rest, " ")
			m.By = append(m.By, Test{dir, run})
		default:
			return m, fmt.Errorf("a line begins with %q", line[0])
		}
	}
	m.Old, m.New = strings.Join(before, "\n"), strings.Join(after, "\n")
	return m, nil
}
