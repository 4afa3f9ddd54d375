package etcdlock

import (
	"crypto/rand"
	"strconv"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// keyPool names the keys of a Backend's claims, and uses each name again after its claim
// has left. An etcd server walks through all names that a range ever had since the last
// compaction, so with a name for each claim a lock that was taken a hundred thousand
// times would cost fifty times as much as a new one. The zero value is ready.
//
// Invariants: a claim keeps its name until it is known that the claim is not in line and
// that no Enter of it may still arrive. Retries of an Enter reuse the name, so they
// cannot make a second claim. Names of different Backends differ. Each transaction that
// puts a claim compares that its name is free.
type keyPool struct {
	mu    sync.Mutex
	tag   string // random; part of each new name
	names map[driver.ClaimRef]string
	inUse map[string]*keyUse // by name
	idle  int                // names that no call uses
}

// keyUse is what is known of a name.
type keyUse struct {
	by      driver.ClaimRef
	until   time.Time // when the name is free again; zero while calls use it
	pending bool      // an Enter of by has an unknown outcome
}

// maxIdle bounds the names that are kept for claims that no call uses.
const maxIdle = 1 << 16

// name returns the name of a claim that this Backend has put, or may have put; else "".
func (p *keyPool) name(ref driver.ClaimRef) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.names[ref]
}

// take returns the name for the key of c: the one it has, or a free one.
func (p *keyPool) take(l line, c *driver.Claim) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name, known := p.names[c.Ref()]; known {
		use := p.inUse[name]
		if !use.until.IsZero() {
			p.idle--
		}
		use.until = time.Time{}
		return name
	}
	if p.tag == "" {
		p.tag = newTag()
		p.names = make(map[driver.ClaimRef]string)
		p.inUse = make(map[string]*keyUse)
	}
	begin := string(l) + string(classOf(c)) + p.tag
	for n := 0; ; n++ {
		name := begin + strconv.Itoa(n)
		if use := p.inUse[name]; use != nil && (use.until.IsZero() || use.until.After(time.Now())) {
			continue
		}
		p.free(name)
		p.names[c.Ref()] = name
		p.inUse[name] = &keyUse{by: c.Ref()}
		return name
	}
}

func newTag() string { return rand.Text()[:16] }

// left says that the claim is not in line, and that no Enter of it may still arrive.
func (p *keyPool) left(ref driver.ClaimRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(p.names[ref])
}

// notInLine says that the claim is not in line now. It keeps its name for a while if an
// Enter of it may still arrive.
func (p *keyPool) notInLine(ref driver.ClaimRef, while time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if use := p.use(ref); use != nil && use.pending {
		p.keep(use, while)
		return
	}
	p.free(p.names[ref])
}

// enterPending says that an Enter of the claim has an unknown outcome.
func (p *keyPool) enterPending(ref driver.ClaimRef, while time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if use := p.use(ref); use != nil {
		use.pending = true
		p.keep(use, while)
	}
}

// maybeInLine says that the claim may be in line for a while, and that no call uses it.
func (p *keyPool) maybeInLine(ref driver.ClaimRef, while time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if use := p.use(ref); use != nil {
		p.keep(use, while)
	}
}

// collided says that another claim was found under the name of ref: an Enter that was
// given up has arrived late. All new names differ from now on. It reports false if ref
// must not get another name.
func (p *keyPool) collided(ref driver.ClaimRef) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if use := p.use(ref); use != nil && use.pending {
		return false
	}
	p.free(p.names[ref])
	p.tag = newTag()
	return true
}

// use returns what is known of the name of ref, or nil. p.mu is held.
func (p *keyPool) use(ref driver.ClaimRef) *keyUse { return p.inUse[p.names[ref]] }

// keep reserves a name for a while. p.mu is held.
func (p *keyPool) keep(use *keyUse, while time.Duration) {
	if use.until.IsZero() {
		if p.idle >= maxIdle {
			p.freeIdle()
		}
		p.idle++
	}
	use.until = time.Now().Add(while)
}

// freeIdle lets all idle names go. A name that goes too early costs a collision.
func (p *keyPool) freeIdle() {
	for name, use := range p.inUse {
		if !use.until.IsZero() {
			p.free(name)
		}
	}
}

// free lets a name go. p.mu is held.
func (p *keyPool) free(name string) {
	use := p.inUse[name]
	if use == nil {
		return
	}
	if !use.until.IsZero() {
		p.idle--
	}
	delete(p.inUse, name)
	delete(p.names, use.by)
}
