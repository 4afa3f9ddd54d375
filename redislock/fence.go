package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/fence"
	"github.com/redis/go-redis/v9"
)

// DefaultFencePrefix is what marks begin with if FenceOptions do not say otherwise.
const DefaultFencePrefix = "fence:"

// FenceOptions change how marks are kept. Nil and the zero value are ready for use.
type FenceOptions struct {
	// Prefix is what the keys of all marks begin with; DefaultFencePrefix if empty.
	// It must not hold braces. All programs that write the same data use the same one.
	Prefix string

	// Keep is how long a mark stays after the last write; forever if zero. A holder
	// that is paused for longer may write: choose days, not minutes.
	Keep time.Duration
}

// Fence writes data to Redis for holders of locks, and refuses those whose token is
// stale with an error that matches [fence.ErrStale]. The lock may be in any store;
// its grant must be exclusive. Package fence says what all guards have in common.
//
// Beside each key that it writes it keeps the largest token seen, its mark, in the
// same slot of a Cluster. The comparison and the write are one script. The mark is
// as durable as the data: who loses the one loses the other.
//
// Every write to the key must go through a Fence. Each costs one round trip, and
// two when the server does not know the script yet. The user of the client needs
// the rights +eval +evalsha +get +set +del, for the keys and for fence:*.
//
// Its methods may be called from many goroutines at once.
type Fence struct {
	rdb      redis.UniversalClient
	prefix   string
	keep     string // ms
	invalid  error
	set, del *FencedScript
}

// NewFence returns a Fence that writes with rdb, which stays the caller's to close.
// A bad option is the answer to the first write.
func NewFence(rdb redis.UniversalClient, o *FenceOptions) *Fence {
	if o == nil {
		o = &FenceOptions{}
	}
	f := &Fence{rdb: rdb, prefix: o.Prefix, keep: "0"}
	if f.prefix == "" {
		f.prefix = DefaultFencePrefix
	}
	if o.Keep != 0 {
		f.keep = strconv.FormatInt(max(o.Keep.Milliseconds(), 1), 10)
	}
	switch {
	case rdb == nil:
		f.invalid = errors.New("redis: there is no client")
	case strings.ContainsAny(f.prefix, "{}"):
		f.invalid = fmt.Errorf("redis: the prefix %q of marks holds a brace: marks have the hash tag of their key",
			f.prefix)
	case o.Keep < 0:
		f.invalid = fmt.Errorf("redis: marks cannot be kept for %v: want a positive time, or zero forever", o.Keep)
	}
	f.set = f.Script("return redis.call('SET', KEYS[1], unpack(ARGV))")
	f.del = f.Script("return redis.call('DEL', KEYS[1])")
	return f
}

// Set sets key to value, which is of any type that go-redis takes. expiration is as
// for go-redis' Set: zero for none, redis.KeepTTL to leave it as it is.
func (f *Fence) Set(ctx context.Context, key string, value any, expiration time.Duration, token fence.Token) error {
	args := []any{value}
	switch {
	case expiration == redis.KeepTTL:
		args = append(args, "KEEPTTL")
	case expiration < 0:
		return fmt.Errorf("redis: set %q: the expiration %v is negative", key, expiration)
	case expiration > 0:
		args = append(args, "PX", max(expiration.Milliseconds(), 1))
	}
	return f.set.Run(ctx, token, []string{key}, args...).Err()
}

// Del deletes key, if it is there. Its mark stays.
func (f *Fence) Del(ctx context.Context, key string, token fence.Token) error {
	return f.del.Run(ctx, token, []string{key}).Err()
}

// Mark returns the key of the mark of key: the largest token seen, in decimal. To
// forget a key that nobody will ever write again, delete its mark.
func (f *Fence) Mark(key string) string {
	// Cluster finds the slot by what is in the first braces, or by the whole key if
	// there is nothing in them. The three forms are never the same text.
	switch open := strings.IndexByte(key, '{'); {
	case open >= 0 && strings.IndexByte(key[open+1:], '}') > 0:
		return f.prefix + "t:" + key
	case !strings.Contains(key, "}"):
		return f.prefix + "{" + key + "}"
	}
	// No hash tag is the same as such a key; one in the same slot is found soon.
	want := hashSlot(key)
	for n := 0; ; n++ {
		tag := "{" + strconv.Itoa(n) + "}"
		if hashSlot(tag) == want {
			return f.prefix + "s:" + tag + key
		}
	}
}

// FencedScript is a Lua script of yours behind a [Fence].
type FencedScript struct {
	f      *Fence
	script *redis.Script
}

// fenceText is what stands before every fenced script.
var fenceText = oneLine(scriptText("fence"))

// Script returns a Lua script that is run only for tokens that are not stale:
//
//	take := fence.Script(`
//		local left = tonumber(redis.call('GET', KEYS[1]) or '0')
//		if left < tonumber(ARGV[1]) then return -1 end
//		return redis.call('DECRBY', KEYS[1], ARGV[1])`)
//	left, err := take.Run(ctx, lease.Token(), []string{"stock:{sku1}"}, 1).Int()
//
// src sees the KEYS and ARGV that Run is given. If it fails half way, what it wrote
// stays, as with every script of Redis, and the token counts as seen.
func (f *Fence) Script(src string) *FencedScript {
	head := ""
	if strings.HasPrefix(src, "#!") { // must be the first line
		line, rest, _ := strings.Cut(src, "\n")
		head, src = line+"\n", rest
	}
	return &FencedScript{f, redis.NewScript(head + fenceText + " " + src)}
}

// Run runs the script on keys, the first of which is the resource whose mark is
// compared; the others must be in its slot if the server is a Cluster, and must be
// written under locks of the same key. The error of the result matches
// [fence.ErrStale] if a larger token was seen; then nothing was done.
func (s *FencedScript) Run(ctx context.Context, token fence.Token, keys []string, args ...any) *redis.Cmd {
	f := s.f
	fail := func(err error) *redis.Cmd {
		c := redis.NewCmd(ctx)
		c.SetErr(err)
		return c
	}
	switch {
	case f.invalid != nil:
		return fail(f.invalid)
	case len(keys) == 0 || keys[0] == "":
		return fail(errors.New("redis: a fenced script has no key: the first one names what is guarded"))
	case token <= 0:
		return fail(fmt.Errorf("redis: write %q: %w: pass the token of the lease under which this is written",
			keys[0], fence.ErrNoToken))
	}
	withMark := append(append(make([]string, 0, len(keys)+1), keys...), f.Mark(keys[0]))
	withToken := append(append(make([]any, 0, len(args)+2), args...), token.String(), f.keep)
	c := s.script.Run(ctx, f.rdb, withMark, withToken...)
	if err := c.Err(); err != nil && !errors.Is(err, redis.Nil) {
		c.SetErr(fenceFailed(keys[0], token, err))
	}
	return c
}

// fenceFailed explains an error of a fenced script.
func fenceFailed(key string, token fence.Token, err error) error {
	text := err.Error()
	if _, after, is := strings.Cut(text, "FENCELOCK STALE "); is {
		digits := strings.IndexFunc(after+" ", func(r rune) bool { return r < '0' || r > '9' })
		seen, _ := fence.Parse(after[:digits]) // zero if it cannot be read: refused all the same
		return &fence.StaleError{Resource: key, Token: token, Seen: seen}
	}
	if strings.Contains(text, "FENCELOCK DAMAGED ") {
		return fmt.Errorf("redis: write %q: its mark holds something that is no token: give marks another Prefix, "+
			"or delete it when no former holder can be left (%w)", key, err)
	}
	return fmt.Errorf("redis: write %q: %w", key, err)
}

// oneLine drops the comments of a script and joins its lines.
func oneLine(text string) string {
	var parts []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			parts = append(parts, line)
		}
	}
	return strings.Join(parts, " ")
}
