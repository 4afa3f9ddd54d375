// Package slot divides time into slots by what the clocks of a zone show.
package slot

import "time"

// Start returns the begin of the slot of length d that t is in, in the zone of t. d divides
// a day. The begins of slots are the moments at which the clock shows a multiple of d since
// midnight, or jumps forward over one: so each time of a cron line such as "0 */6 * * *"
// begins a slot, and only these, also on days when the clock jumps. When the clock goes back
// by less than d, what it shows again begins no second slot.
//
// A later t is never in an earlier slot.
func Start(t time.Time, d time.Duration) time.Time {
	for {
		start := t.Add(-(wall(t) % d))
		from, _ := t.ZoneBounds()
		if from.IsZero() {
			return start
		}
		before := from.Add(-1)
		was, is := offset(before), offset(from)
		if start.Before(from) {
			// Since the jump the clock has shown no multiple of d. Was one jumped over?
			if m := wall(t) - wall(t)%d; is > was && m >= unix(from)+was {
				return from.In(t.Location())
			}
		} else if back := was - is; back <= 0 || d <= back || wall(start) >= unix(from)+was {
			return start
		}
		t = before.In(t.Location())
	}
}

// Near is Start for a time for which something was scheduled: a moment that is just before a
// slot, by half a minute or half a slot at most, counts for that slot.
func Near(t time.Time, d time.Duration) time.Time {
	return Start(t.Add(min(d, time.Minute)/2), d)
}

// Tick returns the slot of t, a tick of a schedule whose next tick after t is next, or zero. It is t, unless
// the clock went back before t by less than the time from tick to tick: what it shows again begins
// no second slot, as in Start. Then the slot is the moment at which the clock showed the same first.
func Tick(t, next time.Time) time.Time {
	from, _ := t.ZoneBounds()
	if from.IsZero() {
		return t
	}
	back := offset(from.Add(-1).In(t.Location())) - offset(from.In(t.Location()))
	if t.Sub(from) < back && (next.IsZero() || back < next.Sub(t)) {
		return t.Add(-back)
	}
	return t
}

// wall is what the clock shows, since 1970.
func wall(t time.Time) time.Duration { return unix(t) + offset(t) }

func unix(t time.Time) time.Duration {
	return time.Duration(t.Unix())*time.Second + time.Duration(t.Nanosecond())
}

func offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}
