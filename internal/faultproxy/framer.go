package faultproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Framer finds the messages of a protocol, without TLS. The zero Framer takes what is read at
// once for a message: enough where each side waits for the other.
type Framer struct {
	// Request reads the next message of a client; first says that it is the first of its
	// connection. asks says that the server answers it.
	Request func(r *bufio.Reader, first bool) (message []byte, asks bool, err error)
	// Answer reads the next message of a server; last says that it completes an answer.
	Answer func(r *bufio.Reader) (message []byte, last bool, err error)
	// Aside, if set, tells the first message of a connection that belongs to the protocol beside the one that is
	// tested: it is passed on, and is no Request of a test.
	Aside func(message []byte) bool
}

// orPieces is f with what it lacks: what is read at once is a message.
func (f Framer) orPieces() Framer {
	if f.Request == nil {
		f.Request = func(r *bufio.Reader, _ bool) ([]byte, bool, error) { return piece(r) }
	}
	if f.Answer == nil {
		f.Answer = piece
	}
	return f
}

// piece reads what is there, one byte at least.
func piece(r *bufio.Reader) (m []byte, whole bool, err error) {
	if _, err := r.Peek(1); err != nil {
		return nil, true, err
	}
	m, err = more(r, nil, r.Buffered())
	return m, true, err
}

// longest is how long a message may be. A longer one is of another protocol.
const longest = 16 << 20

// more reads n bytes behind m.
func more(r io.Reader, m []byte, n int) ([]byte, error) {
	if n < 0 || n > longest {
		return m, fmt.Errorf("a message of %d bytes", n)
	}
	at := len(m)
	m = append(m, make([]byte, n)...)
	_, err := io.ReadFull(r, m[at:])
	return m, err
}

// Redis is RESP, 2 and 3. What the server pushes to a subscriber is no answer; in RESP 2
// that is every message after the answer to SUBSCRIBE.
var Redis = Framer{
	Request: func(r *bufio.Reader, _ bool) ([]byte, bool, error) {
		m, err := respValue(r, nil)
		return m, true, err
	},
	Answer: func(r *bufio.Reader) ([]byte, bool, error) {
		m, err := respValue(r, nil)
		return m, err == nil && m[0] != '>' && !bytes.HasPrefix(m, []byte("*3\r\n$7\r\nmessage\r\n")), err
	},
}

// respValue reads one value of RESP behind m.
func respValue(r *bufio.Reader, m []byte) ([]byte, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return m, err
	}
	m = append(m, line...)
	kind := line[0]
	if !strings.ContainsRune("$=!*~>%|", rune(kind)) {
		return m, nil
	}
	n, err := strconv.Atoi(strings.TrimRight(line[1:], "\r\n"))
	if err != nil || n < 0 {
		return m, err
	}
	switch kind {
	case '$', '=', '!':
		return more(r, m, n+len("\r\n"))
	case '%', '|':
		n *= 2
	}
	for range n {
		if m, err = respValue(r, m); err != nil {
			return m, err
		}
	}
	return m, nil
}

// Args are the words of a command of Redis.
func (r Request) Args() []string {
	var args []string
	_, rest, _ := bytes.Cut(r.Data, []byte("\r\n"))
	for len(rest) > 0 {
		size, text, _ := bytes.Cut(rest, []byte("\r\n"))
		n, err := strconv.Atoi(string(size[1:]))
		if err != nil || n+len("\r\n") > len(text) {
			return args
		}
		args, rest = append(args, string(text[:n])), text[n+len("\r\n"):]
	}
	return args
}

// ZooKeeper has a length before each message. An event of a watch, with the xid -1, is no
// answer. After the first message, Data[4:8] is the xid of a request and Data[8:12] its type. A word of
// four letters, such as ruok, has no length, nor has the text that answers it.
var ZooKeeper = Framer{
	Request: func(r *bufio.Reader, first bool) ([]byte, bool, error) {
		if first && isText(r) {
			m, err := more(r, nil, 4)
			return m, false, err
		}
		m, err := prefixed(r, 0, 0)
		return m, true, err
	},
	Aside: func(m []byte) bool { return len(m) == 4 },
	Answer: func(r *bufio.Reader) ([]byte, bool, error) {
		if isText(r) {
			return piece(r)
		}
		m, err := prefixed(r, 0, 0)
		return m, len(m) < 8 || int32(binary.BigEndian.Uint32(m[4:])) != -1, err
	},
}

// isText reports whether what follows is text and not the length of a message, which is less than 1<<24.
func isText(r *bufio.Reader) bool {
	head, err := r.Peek(1)
	return err == nil && head[0] >= 'A'
}

// GRPC is HTTP/2, frame by frame. A request or an answer is complete with the frame that ends its
// stream.
var GRPC = Framer{
	Request: func(r *bufio.Reader, first bool) ([]byte, bool, error) {
		if first {
			m, err := more(r, nil, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
			return m, false, err
		}
		return http2Frame(r)
	},
	Answer: http2Frame,
}

func http2Frame(r *bufio.Reader) (m []byte, ends bool, err error) {
	const (
		header, data, headers = 9, 0, 1
		endStream             = 1
	)
	if m, err = more(r, nil, header); err != nil {
		return m, false, err
	}
	kind, flags := m[3], m[4]
	m, err = more(r, m, int(m[0])<<16|int(m[1])<<8|int(m[2]))
	return m, (kind == data || kind == headers) && flags&endStream != 0, err
}

// prefixed reads a message that has its length in 4 bytes, after `before` other ones. The
// length counts `counted` of these bytes.
func prefixed(r io.Reader, before, counted int) ([]byte, error) {
	m, err := more(r, nil, before+4)
	if err != nil {
		return m, err
	}
	return more(r, m, int(int32(binary.BigEndian.Uint32(m[before:])))-counted)
}

// Postgres is the protocol of PostgreSQL, version 3. A request is all messages up to Sync, or
// a Query, or a password, or the first message of a connection. An answer ends with
// ReadyForQuery, or asks for a password.
var Postgres = Framer{
	Request: func(r *bufio.Reader, first bool) ([]byte, bool, error) {
		if first {
			m, err := prefixed(r, 0, 4)
			return m, true, err
		}
		var all []byte
		for {
			m, err := prefixed(r, 1, 4)
			all = append(all, m...)
			switch {
			case err != nil:
				return all, false, err
			case m[0] == 'S' || m[0] == 'Q' || m[0] == 'p':
				return all, true, nil
			case m[0] == 'X' || m[0] == 'H':
				return all, false, nil
			}
		}
	},
	Answer: func(r *bufio.Reader) ([]byte, bool, error) {
		m, err := prefixed(r, 1, 4)
		if err != nil {
			return m, false, err
		}
		password := m[0] == 'R' && len(m) >= 9 && binary.BigEndian.Uint32(m[5:]) != 0
		return m, m[0] == 'Z' || password, nil
	},
}

// MySQL is the protocol of MySQL and MariaDB. A client sends nothing more before it has its
// answer, so what comes from the server need not be understood.
var MySQL = Framer{
	Request: func(r *bufio.Reader, _ bool) ([]byte, bool, error) {
		head, err := r.Peek(4)
		if err != nil {
			return nil, false, err
		}
		m, err := more(r, nil, 4+(int(head[0])|int(head[1])<<8|int(head[2])<<16))
		return m, err == nil && asksMySQL(m), err
	},
}

// Command is the text of a command of MySQL, behind its first byte, which is its type. ok is
// false for what belongs to the greeting or continues a command.
func (r Request) Command() (text string, ok bool) {
	if len(r.Data) <= 4 || r.Data[3] != 0 {
		return "", false
	}
	return string(r.Data[4:]), true
}

// asksMySQL reports whether the server answers a message: not one that continues a command,
// and none of COM_QUIT, COM_STMT_SEND_LONG_DATA and COM_STMT_CLOSE.
func asksMySQL(m []byte) bool {
	return len(m) > 4 && m[3] == 0 && m[4] != 0x01 && m[4] != 0x18 && m[4] != 0x19
}
