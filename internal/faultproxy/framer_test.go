package faultproxy

import (
	"bufio"
	"strings"
	"testing"
)

// message is what a Framer says of a message; flag is asks or last.
type message struct {
	data string
	flag bool
}

// redisRequest is a request as a client sends it.
func redisRequest(words ...string) string {
	var b strings.Builder
	b.WriteString("*" + string(rune('0'+len(words))) + "\r\n")
	for _, w := range words {
		b.WriteString("$" + string(rune('0'+len(w))) + "\r\n" + w + "\r\n")
	}
	return b.String()
}

var framed = map[string]struct {
	framer  Framer
	request []message
	answer  []message
}{
	"Redis": {
		Redis,
		[]message{{redisRequest("GET", "k"), true}, {redisRequest("SET", "k", "\r\n"), true}},
		[]message{
			{"+OK\r\n", true}, {"$-1\r\n", true}, {"$2\r\n\r\n\r\n", true}, {"%1\r\n+k\r\n:1\r\n", true},
			{"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n", true}, {">2\r\n+a\r\n+b\r\n", false},
			{"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n", false}, {"*-1\r\n", true},
		},
	},
	"ZooKeeper": {
		ZooKeeper,
		[]message{{"ruok", false}, {"\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x04", true}},
		[]message{{"\x00\x00\x00\x04\x00\x00\x00\x01", true}, {"\x00\x00\x00\x05\xff\xff\xff\xffx", false}, {"imok", true}},
	},
	"Postgres": {
		Postgres,
		[]message{
			{"\x00\x00\x00\x08\x00\x03\x00\x00", true}, {"p\x00\x00\x00\x05x", true},
			{"P\x00\x00\x00\x04B\x00\x00\x00\x04S\x00\x00\x00\x04", true}, {"Q\x00\x00\x00\x05\x00", true},
			{"X\x00\x00\x00\x04", false},
		},
		[]message{
			{"R\x00\x00\x00\x08\x00\x00\x00\x05", true}, {"R\x00\x00\x00\x08\x00\x00\x00\x00", false},
			{"A\x00\x00\x00\x04", false}, {"Z\x00\x00\x00\x05I", true},
		},
	},
	"MySQL": {
		MySQL,
		[]message{
			{"\x02\x00\x00\x01ab", false}, {"\x02\x00\x00\x00\x03q", true}, {"\x01\x00\x00\x00\x01", false},
			{"\x05\x00\x00\x00\x19abcd", false},
		},
		nil,
	},
}

func TestFramersFindTheMessages(t *testing.T) {
	for name, test := range framed {
		t.Run(name, func(t *testing.T) {
			r := bufio.NewReader(strings.NewReader(join(test.request)))
			for i, want := range test.request {
				m, asks, err := test.framer.orPieces().Request(r, i == 0)
				if got := (message{string(m), asks}); got != want || err != nil {
					t.Errorf("request %d is %v, %v; want %v", i, got, err, want)
				}
			}
			r = bufio.NewReader(strings.NewReader(join(test.answer)))
			for i, want := range test.answer {
				m, last, err := test.framer.orPieces().Answer(r)
				if got := (message{string(m), last}); got != want || err != nil {
					t.Errorf("answer %d is %v, %v; want %v", i, got, err, want)
				}
			}
		})
	}
}

func join(all []message) string {
	var b strings.Builder
	for _, m := range all {
		b.WriteString(m.data)
	}
	return b.String()
}
