package cut

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// most is how long a message may be that is read as a whole.
const most = 16 << 20

// Redis is RESP, 2 and 3. What the server pushes to a subscriber counts for no answer;
// in RESP 2 that is every message after the answer to SUBSCRIBE.
var Redis = Protocol{
	Request: func(r *bufio.Reader, _ bool) ([]byte, bool, error) {
		m, err := value(r, nil)
		return m, true, err
	},
	Reply: func(r *bufio.Reader) ([]byte, bool, error) {
		m, err := value(r, nil)
		return m, err == nil && m[0] != '>' && !strings.HasPrefix(string(m), "*3\r\n$7\r\nmessage\r\n"), err
	},
}

// value reads one value of RESP behind m.
func value(r *bufio.Reader, m []byte) ([]byte, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return m, err
	}
	m = append(m, line...)
	text := strings.TrimRight(line[1:], "\r\n")
	switch line[0] {
	case '$', '=', '!':
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return m, err
		}
		return body(r, m, n+2)
	case '*', '~', '>', '%', '|':
		n, err := strconv.Atoi(text)
		if err != nil {
			return m, err
		}
		if line[0] == '%' || line[0] == '|' {
			n *= 2
		}
		for range n {
			if m, err = value(r, m); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}

// body reads n bytes behind m.
func body(r io.Reader, m []byte, n int) ([]byte, error) {
	if n < 0 || n > most {
		return m, fmt.Errorf("a message of %d bytes", n)
	}
	at := len(m)
	m = append(m, make([]byte, n)...)
	_, err := io.ReadFull(r, m[at:])
	return m, err
}

// Postgres is the protocol of PostgreSQL, version 3, without TLS. A request ends with
// Sync or is a Query, or it is the first message of a connection; an answer ends with
// ReadyForQuery, or asks for a password.
var Postgres = Protocol{
	Request: func(r *bufio.Reader, first bool) ([]byte, bool, error) {
		var all []byte
		for {
			kind, m, err := typed(r, !first)
			all = append(all, m...)
			// What belongs to one request is cut as one, and half of it is half of that.
			if err != nil || first || kind == 'S' || kind == 'Q' || kind == 'p' {
				return all, err == nil, err
			}
			if kind == 'X' || kind == 'H' {
				return all, false, nil
			}
		}
	},
	Reply: func(r *bufio.Reader) ([]byte, bool, error) {
		kind, m, err := typed(r, true)
		asksForPassword := kind == 'R' && len(m) >= 9 && binary.BigEndian.Uint32(m[5:]) != 0
		return m, kind == 'Z' || asksForPassword, err
	},
}

// typed reads one message of PostgreSQL; all but the first of a client begin with their
// kind.
func typed(r io.Reader, withKind bool) (kind byte, m []byte, err error) {
	head := 4
	if withKind {
		head = 5
	}
	if m, err = body(r, nil, head); err != nil {
		return 0, m, err
	}
	if withKind {
		kind = m[0]
	}
	m, err = body(r, m, int(int32(binary.BigEndian.Uint32(m[head-4:])))-4)
	return kind, m, err
}

// Pieces is for protocols in which each side waits for the other, of which nothing needs
// to be understood: what comes in one piece is a message.
var Pieces = Protocol{
	Request: func(r *bufio.Reader, _ bool) ([]byte, bool, error) {
		m, err := piece(r)
		return m, true, err
	},
	Reply: func(r *bufio.Reader) ([]byte, bool, error) {
		m, err := piece(r)
		return m, true, err
	},
}

// piece reads what is there.
func piece(r *bufio.Reader) ([]byte, error) {
	if _, err := r.Peek(1); err != nil {
		return nil, err
	}
	m := make([]byte, r.Buffered())
	_, err := io.ReadFull(r, m)
	return m, err
}
