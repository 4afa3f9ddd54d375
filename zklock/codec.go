package zklock

import (
	"encoding/binary"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// Requests, by the numbers that ZooKeeper gives them.
const (
	opCreate          = 1
	opDelete          = 2
	opExists          = 3
	opGetData         = 4
	opSetData         = 5
	opSync            = 9
	opChildren        = 12
	opCheck           = 13
	opMulti           = 14
	opCreateContainer = 19
	opSetAuth         = 100
	opError           = -1
)

// packer writes a request.
type packer struct{ b []byte }

// pack begins a request. Its length and number are filled in when it is sent.
func pack(op int32) *packer {
	p := &packer{b: make([]byte, 8, 256)}
	p.int32(op)
	return p
}

func (p *packer) int32(x int32) { p.b = binary.BigEndian.AppendUint32(p.b, uint32(x)) }

func (p *packer) string(s string) {
	p.int32(int32(len(s)))
	p.b = append(p.b, s...)
}

func (p *packer) bytes(b []byte) {
	if b == nil {
		p.int32(-1)
		return
	}
	p.int32(int32(len(b)))
	p.b = append(p.b, b...)
}

func (p *packer) bool(b bool) {
	x := byte(0)
	if b {
		x = 1
	}
	p.b = append(p.b, x)
}

func (p *packer) create(path string, data []byte, acl []zk.ACL, flags int32) {
	p.string(path)
	p.bytes(data)
	p.int32(int32(len(acl)))
	for _, a := range acl {
		p.int32(a.Perms)
		p.string(a.Scheme)
		p.string(a.ID)
	}
	p.int32(flags)
}

func (p *packer) at(path string, version int32) {
	p.string(path)
	p.int32(version)
}

func (p *packer) set(path string, data []byte, version int32) {
	p.string(path)
	p.bytes(data)
	p.int32(version)
}

// part begins a part of a transaction, or ends it.
func (p *packer) part(op int32, last bool) {
	p.int32(op)
	p.bool(last)
	p.int32(-1)
}

func (p *packer) multi(ops []any) {
	for _, op := range ops {
		switch op := op.(type) {
		case *zk.CreateRequest:
			p.part(opCreate, false)
			p.create(op.Path, op.Data, op.Acl, op.Flags)
		case *zk.DeleteRequest:
			p.part(opDelete, false)
			p.at(op.Path, op.Version)
		case *zk.SetDataRequest:
			p.part(opSetData, false)
			p.set(op.Path, op.Data, op.Version)
		case *zk.CheckVersionRequest:
			p.part(opCheck, false)
			p.at(op.Path, op.Version)
		default:
			panic(fmt.Sprintf("zklock: a transaction of %T", op))
		}
	}
	p.part(-1, true)
}

// unpacker reads an answer. What is too short is read as zeros, and noted.
type unpacker struct {
	b     []byte
	short bool
}

func (u *unpacker) take(n int) []byte {
	if n < 0 || n > len(u.b) {
		u.b, u.short = nil, true
		return nil
	}
	b := u.b[:n]
	u.b = u.b[n:]
	return b
}

func (u *unpacker) int32() int32 {
	if b := u.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (u *unpacker) int64() int64 {
	if b := u.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (u *unpacker) bool() bool {
	b := u.take(1)
	return b != nil && b[0] != 0
}

func (u *unpacker) string() string { return string(u.take(int(u.int32()))) }

func (u *unpacker) bytes() []byte {
	n := u.int32()
	if n == -1 {
		return nil
	}
	return append([]byte{}, u.take(int(n))...)
}

func (u *unpacker) stat() *zk.Stat {
	return &zk.Stat{
		Czxid: u.int64(), Mzxid: u.int64(), Ctime: u.int64(), Mtime: u.int64(),
		Version: u.int32(), Cversion: u.int32(), Aversion: u.int32(),
		EphemeralOwner: u.int64(), DataLength: u.int32(), NumChildren: u.int32(), Pzxid: u.int64(),
	}
}

// strings reads a list. Each of them keeps the memory of all: clone what is kept for long.
func (u *unpacker) strings() []string {
	n := int(u.int32())
	if n < 0 || n > len(u.b)/4 { // each has a length at least
		u.short = u.short || n != -1
		return nil
	}
	all := make([]string, 0, n)
	rest := string(u.b) // once for all of them
	for range n {
		b := u.take(int(u.int32()))
		if u.short {
			return nil
		}
		rest = rest[4:]
		all = append(all, rest[:len(b)])
		rest = rest[len(b):]
	}
	return all
}

// multi reads what has become of the parts of a transaction, and returns the first error
// of one.
func (u *unpacker) multi() (rs []zk.MultiResponse, first error) {
	rs = make([]zk.MultiResponse, 0, 4) // as many as a claim needs, and one
	for !u.short {
		op := u.int32()
		last := u.bool()
		u.int32()
		if last {
			break
		}
		var r zk.MultiResponse
		switch op {
		case opError:
			if r.Error = errorOf(u.int32()); first == nil {
				first = r.Error
			}
		case opCreate:
			r.String = u.string()
		case opSetData:
			r.Stat = u.stat()
		case opDelete, opCheck:
		default:
			u.short = true
		}
		rs = append(rs, r)
	}
	return rs, first
}

// errorOf is the error that the server means by its code.
func errorOf(code int32) error {
	if code == 0 {
		return nil
	}
	if err := codes[code]; err != nil {
		return err
	}
	return fmt.Errorf("error %d of the server", code)
}

var codes = map[int32]error{
	-6:   errUnimplemented,
	-8:   zk.ErrBadArguments,
	-100: zk.ErrAPIError,
	-101: zk.ErrNoNode,
	-102: zk.ErrNoAuth,
	-103: zk.ErrBadVersion,
	-108: zk.ErrNoChildrenForEphemerals,
	-110: zk.ErrNodeExists,
	-111: zk.ErrNotEmpty,
	-112: zk.ErrSessionExpired,
	-114: zk.ErrInvalidACL,
	-115: zk.ErrAuthFailed,
	-116: zk.ErrClosing,
	-118: zk.ErrSessionMoved,
}
