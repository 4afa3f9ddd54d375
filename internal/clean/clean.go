// Package clean reads settings from the environment and from files as people mean them.
// Editors, shells, docker --env-file and Kubernetes secrets leave around a value what is not
// part of it.
package clean

import (
	"encoding/binary"
	"os"
	"strings"
	"unicode/utf16"
)

// Env returns the value of a variable of the environment, cleaned.
func Env(name string) string { return Value(os.Getenv(name)) }

// Value returns a setting without a byte order mark, without blanks, tabs and line ends around
// it, and without one pair of quotes around the rest. What is inside the quotes stays as it is,
// so a value that begins and ends with a quote or a blank is written in quotes.
func Value(s string) string {
	s = strings.TrimSpace(strings.TrimPrefix(s, byteOrderMark))
	if n := len(s); n >= 2 && (s[0] == '"' || s[0] == '\'') && s[n-1] == s[0] {
		return s[1 : n-1]
	}
	return s
}

// Text returns the text of a file in UTF-8 without a byte order mark. A file that begins with
// the mark of UTF-16, as PowerShell writes it, is decoded.
func Text(file []byte) string {
	s := string(file)
	var order binary.ByteOrder
	switch {
	case strings.HasPrefix(s, "\xff\xfe"):
		order = binary.LittleEndian
	case strings.HasPrefix(s, "\xfe\xff"):
		order = binary.BigEndian
	default:
		return strings.TrimPrefix(s, byteOrderMark)
	}
	var units []uint16
	for i := 2; i+1 < len(file); i += 2 {
		units = append(units, order.Uint16(file[i:]))
	}
	return string(utf16.Decode(units))
}

const byteOrderMark = "\ufeff"
