package others

import "time"

// span is a time. One without an end goes on.
type span struct{ from, to time.Time }

// closeLast ends the last span unless it has ended.
func closeLast(all []span, at time.Time) {
	if n := len(all); n > 0 && all[n-1].to.IsZero() {
		all[n-1].to = at
	}
}

// active are the times in which p believed that it held the lock, and could act on it.
func (p *process) active(now time.Time) []span {
	p.mu.Lock()
	defer p.mu.Unlock()
	return without(ended(p.beliefs, now), ended(p.pauses, now))
}

func ended(all []span, now time.Time) []span {
	var done []span
	for _, s := range all {
		if s.to.IsZero() {
			s.to = now
		}
		done = append(done, s)
	}
	return done
}

// without cuts holes out of spans.
func without(all, holes []span) []span {
	for _, h := range holes {
		var left []span
		for _, s := range all {
			if before := (span{s.from, earlier(s.to, h.from)}); before.from.Before(before.to) {
				left = append(left, before)
			}
			if behind := (span{later(s.from, h.to), s.to}); behind.from.Before(behind.to) {
				left = append(left, behind)
			}
		}
		all = left
	}
	return all
}

// together is for how long two lists of spans overlap.
func together(a, b []span) (sum time.Duration) {
	for _, x := range a {
		for _, y := range b {
			sum += max(0, earlier(x.to, y.to).Sub(later(x.from, y.from)))
		}
	}
	return sum
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
