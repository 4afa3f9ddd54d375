package others

import (
	"fmt"
	"time"
)

// A Cell of the matrix says in a word what a lock did in a schedule. Heat is from 0 to 1, a lease.
type Cell struct {
	Text string
	Heat float64
	Kind Kind
}

// Kind classifies a cell.
type Kind int

// The kinds of cells.
const (
	None Kind = iota // the schedule does not apply
	Good             // no time, in order, a token
	Both             // for how long two believed
	Wait             // for how long another one waited
)

// A Row of the matrix is a lock.
type Row struct {
	Name  string
	Ours  bool
	Cells []Cell
}

// Matrix returns what each lock did, of the results that were kept, with the heads of the columns.
func Matrix(verify string) (heads []string, rows []Row, err error) {
	all, err := readResults(verify)
	if err != nil {
		return nil, nil, err
	}
	columns := []struct {
		head, schedule string
		cell           func(r result) Cell
	}{
		{"killed", "kill", func(r result) Cell { return waited(r.Next) }},
		{"stopped", "stop", believed},
		{"cut off", "cut", believed},
		{"long work", "outlive", overlapped},
		{"restart", "restart", overlapped},
		{"wiped", "amnesia", overlapped},
		{"stale replica", "failover", overlapped},
		{"dead waiter", "ghosts", func(r result) Cell { return waited(r.Killed) }},
		{"in order", "order", inOrder},
		{"tokens", "order", func(r result) Cell { return yes(r.Tokens == "rise") }},
	}
	for _, c := range columns {
		heads = append(heads, c.head)
	}
	for _, l := range libraries {
		s := all.Libraries[l.name]
		if s == nil {
			continue
		}
		row := Row{Name: l.name, Ours: l.ours}
		for _, c := range columns {
			r, played := s.Schedules[c.schedule]
			if !played || r.Failed != "" {
				row.Cells = append(row.Cells, Cell{})
				continue
			}
			row.Cells = append(row.Cells, c.cell(r))
		}
		rows = append(rows, row)
	}
	return heads, rows, nil
}

// overlapped is for how long two believed.
func overlapped(r result) Cell {
	if r.Both == 0 {
		return Cell{Text: "0", Kind: Good}
	}
	return Cell{brief(r.Both), heat(r.Both), Both}
}

// believed is the same where a lock may keep everyone out instead.
func believed(r result) Cell {
	if r.Both == 0 && r.Next == never {
		return Cell{"stuck", 1, Wait}
	}
	return overlapped(r)
}

func waited(d time.Duration) Cell {
	if d == never {
		return Cell{"stuck", 1, Wait}
	}
	return Cell{brief(d), heat(d), Wait}
}

func inOrder(r result) Cell {
	for _, o := range r.Orders {
		if o != "1 2 3 4 5" {
			return yes(false)
		}
	}
	return yes(true)
}

func yes(is bool) Cell {
	if is {
		return Cell{Text: "yes", Kind: Good}
	}
	return Cell{"no", 0, Wait}
}

func heat(d time.Duration) float64 { return min(1, d.Seconds()/lease.Seconds()) }

func brief(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "<1 ms"
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
