package httplock

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fencelock/fencelock/internal/limit"
)

// verb is a right to do something with the keys of a prefix.
type verb string

const (
	verbAcquire verb = "acquire" // acquire, once, renew, release, check
	verbLook    verb = "look"    // line, lines, events, metrics
	verbBreak   verb = "break"
	verbAll     verb = "all"
)

var verbs = []verb{verbAcquire, verbLook, verbBreak, verbAll}

// principal is who sends a request.
type principal struct {
	name     string
	hash     []byte // SHA-256 of the token; nil: known by a certificate only
	verbs    []verb
	prefixes []string // "": all keys
}

// anybody is who sends a request to a Server without Tokens.
var anybody = &principal{verbs: []verb{verbAll}, prefixes: []string{""}}

func (p *principal) can(v verb) bool {
	return slices.Contains(p.verbs, v) || slices.Contains(p.verbs, verbAll)
}

// sees reports whether key begins with one of the prefixes of p.
func (p *principal) sees(key string) bool {
	return slices.ContainsFunc(p.prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// may says why p may not do v to key, or nil.
func (p *principal) may(v verb, key string) error {
	if p.can(v) && p.sees(key) {
		return nil
	}
	return &problem{slug: slugForbidden, key: key,
		detail: fmt.Sprintf("The line of %q in the tokens file does not allow %s for this key.", p.name, v)}
}

// Tokens says who may do what. It may be loaded again while Servers use it: streams and waiting
// requests of principals that may not have them any more end then.
type Tokens struct {
	list atomic.Pointer[[]*principal]

	mu      sync.Mutex
	servers map[*Server]bool
}

// tell has s hear of each Load until the Server drains.
func (t *Tokens) tell(s *Server) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.servers == nil {
		t.servers = map[*Server]bool{}
	}
	t.servers[s] = true
	context.AfterFunc(s.draining, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.servers, s)
	})
}

// ReadTokens reads a tokens file: one line for each principal, with four fields between
// spaces.
//
//	name  sha256:<hex of the token's SHA-256>  acquire,look,break,all  prefix,prefix
//
// The verb acquire lets a principal acquire, renew, check and release locks, run slots of once, and
// leave a line. look lets it read lines, events and metrics, with the owners and notes of others.
// break lets it end the lock of any other client. all is the three of them.
//
// The hash is "-" for a name that is known by its client certificate alone, and "*" stands for
// all keys. Empty lines and lines that begin with # are skipped.
func ReadTokens(r io.Reader) (*Tokens, error) {
	t := &Tokens{}
	return t, t.Load(r)
}

// Load replaces what t says by what r says. After an error t is as it was.
func (t *Tokens) Load(r io.Reader) error {
	var list []*principal
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		p, err := readPrincipal(line)
		if err != nil {
			return fmt.Errorf("httplock: line %d of the tokens: %w", n, err)
		}
		list = append(list, p)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("httplock: the tokens cannot be read: %w", err)
	}
	if len(list) == 0 {
		return fmt.Errorf("httplock: the tokens name nobody; want lines of name, sha256:HEX, verbs and prefixes")
	}
	t.list.Store(&list)
	t.mu.Lock()
	servers := slices.Collect(maps.Keys(t.servers))
	t.mu.Unlock()
	for _, s := range servers {
		s.readmit()
	}
	return nil
}

func readPrincipal(line string) (*principal, error) {
	f := strings.Fields(line)
	if len(f) != 4 {
		return nil, fmt.Errorf("it has %d fields; want name, sha256:HEX, verbs and prefixes", len(f))
	}
	p := &principal{name: f[0]}
	if len(p.name) > limit.Owner {
		return nil, fmt.Errorf("the name has more than %d bytes", limit.Owner)
	}
	if f[1] != "-" {
		digits, ok := strings.CutPrefix(f[1], "sha256:")
		hash, err := hex.DecodeString(digits)
		if !ok || err != nil || len(hash) != sha256.Size {
			return nil, fmt.Errorf("the second field is not sha256: and 64 hexadecimal digits")
		}
		p.hash = hash
	}
	for name := range strings.SplitSeq(f[2], ",") {
		if !slices.Contains(verbs, verb(name)) {
			return nil, fmt.Errorf("there is no verb %q; want acquire, look, break or all", name)
		}
		p.verbs = append(p.verbs, verb(name))
	}
	for prefix := range strings.SplitSeq(f[3], ",") {
		switch prefix {
		case "":
			return nil, fmt.Errorf("a prefix is empty; * stands for all keys")
		case "*":
			prefix = ""
		}
		p.prefixes = append(p.prefixes, prefix)
	}
	return p, nil
}

// NewToken draws a token for name, and returns it with its line for a tokens file. The line
// allows acquire for the keys that begin with the name and a slash; edit its last two fields
// to allow more.
func NewToken(name string) (token, line string) {
	token = "flt_" + rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(token))
	return token, fmt.Sprintf("%s  sha256:%s  acquire  %s/", name, hex.EncodeToString(sum[:]), name)
}

// identify finds out who sends r.
func (t *Tokens) identify(r *http.Request) (*principal, error) {
	if t == nil {
		return anybody, nil
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(kind, "Bearer") {
		if p := t.find(strings.TrimSpace(token)); p != nil {
			return p, nil
		}
		return nil, &problem{slug: slugUnauthenticated, detail: "This token is not known, or not any more."}
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		leaf := r.TLS.VerifiedChains[0][0]
		if p := t.named(append([]string{leaf.Subject.CommonName}, leaf.DNSNames...)); p != nil {
			return p, nil
		}
		return nil, &problem{slug: slugUnauthenticated,
			detail: "No line of the tokens file has a name of this certificate."}
	}
	return nil, &problem{slug: slugUnauthenticated, detail: "Send Authorization: Bearer with a token."}
}

// readmit ends what principals of the tokens before a Load have begun and may not go on with.
func (s *Server) readmit() {
	s.waits.endIf(func(t *turn) error {
		who, err := s.o.Tokens.identify(t.request)
		if err != nil {
			return err
		}
		return who.may(verbAcquire, t.want.Key)
	})
	next := make(chan struct{})
	close(*s.reloaded.Swap(&next))
}

// find returns whose token it is, or nil. It compares with every line, and every comparison
// takes the same time.
func (t *Tokens) find(token string) *principal {
	sum := sha256.Sum256([]byte(token))
	var found *principal
	for _, p := range *t.list.Load() {
		if subtle.ConstantTimeCompare(p.hash, sum[:]) == 1 {
			found = p
		}
	}
	return found
}

// named returns the first principal with one of these names, or nil.
func (t *Tokens) named(names []string) *principal {
	for _, p := range *t.list.Load() {
		if slices.Contains(names, p.name) {
			return p
		}
	}
	return nil
}
