package redislock

import (
	"context"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// alarm is one listener.
type alarm struct {
	f func(id string, gone driver.ErrGone)
}

// Alarm calls f, on the goroutine of the subscription, for each claim of this
// Backend that somebody breaks. The subscription is made once a claim has been held
// for a tenth of a second; claims that were granted while there was none are looked
// at once when it is there. A message that is lost later is not made up for.
func (b *Backend) Alarm(f func(id string, gone driver.ErrGone)) (stop func()) {
	a := &alarm{f}
	e := &b.ear
	e.mu.Lock()
	defer e.mu.Unlock()
	e.alarms = append(slices.Clip(e.alarms), a)
	e.alarming.Store(true)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.alarms = slices.DeleteFunc(slices.Clone(e.alarms), func(b *alarm) bool { return a == b })
		e.alarming.Store(len(e.alarms) > 0)
		if len(e.alarms) == 0 {
			e.unheard, e.rung = nil, nil
		}
	}
}

// heed is told of each claim that Enter finds granted. epoch is that from before
// the request was sent.
func (e *ear) heed(id, key string, epoch uint64) {
	if !e.alarming.Load() || epoch != 0 && epoch == e.epoch.Load() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || len(e.unheard) >= unheardMax {
		return
	}
	if e.settled == nil {
		e.settled = time.AfterFunc(settle, e.hasSettled)
	}
	if e.unheard == nil {
		e.unheard = make(map[string]string)
	}
	e.unheard[id] = key
}

// hasSettled subscribes if a claim is held; locks that are held for a moment are
// not worth a connection.
func (e *ear) hasSettled() {
	e.mu.Lock()
	if len(e.unheard) == 0 {
		e.settled = nil
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	e.open()
}

// disregard is told of each claim that leaves.
func (e *ear) disregard(id string) {
	if !e.alarming.Load() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.unheard, id)
}

// catchUp looks at the claims that may have been broken before there was a
// subscription. What cannot be read now is heard of by Renew.
func (e *ear) catchUp(ctx context.Context, unheard map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.reading = nil
	}()
	for id, key := range unheard {
		answer, err := e.b.sender.run(ctx, e.b.step(lookScript, key, tag(id)))
		if err != nil {
			return
		}
		if s, ok := answer.(string); ok && len(s) > 1 && s[:2] == "xb" {
			e.broken(id, goneFor(s), true)
		}
	}
}

// broken tells whoever waits for the claim and everybody who listens. A claim may
// be read and its message come too, in either order: it is told once.
func (e *ear) broken(id string, gone driver.ErrGone, read bool) {
	e.b.waits.hear(id, func(w *wait) { w.gone = &gone })
	e.mu.Lock()
	_, told := e.reading[id]
	told = read && !told || e.rung[id]
	delete(e.unheard, id)
	delete(e.reading, id)
	delete(e.rung, id)
	if read && !told {
		if e.rung == nil || len(e.rung) >= unheardMax {
			e.rung = make(map[string]bool)
		}
		e.rung[id] = true
	}
	alarms := e.alarms
	e.mu.Unlock()
	if told {
		return
	}
	for _, a := range alarms {
		a.f(id, gone)
	}
}
