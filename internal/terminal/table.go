package terminal

import (
	"io"
	"strings"
	"unicode"
)

// Columns is how many columns of a terminal s takes: two for a Chinese character,
// none for a combining mark.
func Columns(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case Wide(r):
			n += 2
		default:
			n++
		}
	}
	return n
}

// wide are the blocks whose characters take two columns.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1}, // Hangul Jamo
		{Lo: 0x2e80, Hi: 0x303e, Stride: 1}, // CJK radicals and punctuation
		{Lo: 0x3041, Hi: 0xa4cf, Stride: 1}, // Kana, CJK ideographs, Yi
		{Lo: 0xa960, Hi: 0xa97f, Stride: 1}, // Hangul Jamo, extended
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1}, // Hangul syllables
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1}, // CJK compatibility ideographs
		{Lo: 0xfe10, Hi: 0xfe19, Stride: 1}, // vertical forms
		{Lo: 0xfe30, Hi: 0xfe6f, Stride: 1}, // CJK compatibility forms
		{Lo: 0xff01, Hi: 0xff60, Stride: 1}, // full-width forms
		{Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x1f300, Hi: 0x1f64f, Stride: 1}, // emoji
		{Lo: 0x1f680, Hi: 0x1f6ff, Stride: 1},
		{Lo: 0x1f900, Hi: 0x1faff, Stride: 1},
		{Lo: 0x20000, Hi: 0x3fffd, Stride: 1}, // CJK ideographs, extended
	},
}

// Wide reports whether r takes two columns.
func Wide(r rune) bool { return unicode.Is(wide, r) }

// Widths returns how wide the columns of a table are: each as its widest cell.
func Widths(rows [][]string) (widths []int) {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Columns(cell))
		}
	}
	return widths
}

// Table prints rows in columns that line up on a terminal, two spaces apart. The first row is
// the heading. paint adds colours to the cells of the others; nil adds none.
func Table(w io.Writer, rows [][]string, paint func(column int, cell string) string) error {
	widths := Widths(rows)
	var all strings.Builder
	for i, row := range rows {
		var line strings.Builder
		for j, cell := range row {
			gap := strings.Repeat(" ", widths[j]-Columns(cell)+2)
			if paint != nil && i > 0 {
				cell = paint(j, cell)
			}
			line.WriteString(cell + gap)
		}
		all.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, all.String())
	return err
}
