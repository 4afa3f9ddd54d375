package swaplock

import (
	"maps"
	"time"
)

// recall says what a step may run on that goes by the line as this process saw it last, without a read. Its swap fails
// if others have written the line since.
type recall int

const (
	never  recall = iota
	enters        // an empty line
	leaves        // one that the claim is in
)

const (
	// leftFor is how long a line that was left empty is believed to be so: the clocks of the store and of the
	// process drift apart. A lease lasts longer by leftSlack at most.
	leftFor   = 10 * time.Second
	leftSlack = 50 * time.Millisecond
	// lonelyFor is how long nobody arrives behind a claim that has waited for the lock, more often than not.
	lonelyFor = 2 * time.Millisecond
	// mostLeft is how many lines are kept that no claim of this process is in.
	mostLeft = 4096
	// unread is how often a process enters a line without a read. Meanwhile it sees no message of a client whose swaps
	// come too late.
	unread = 16
)

// crowded is kept of a line that was not left empty.
var crowded = &State{Content: Content{Holder: "others"}}

// keep keeps the line of key as it was seen; nil if it is not known. A line is kept while a claim of this process is in
// it, and an empty one, or crowded, for longer.
func (cs *claims) keep(key string, st *State) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.keepLocked(key, st)
}

func (cs *claims) keepLocked(key string, st *State) {
	if len(cs.lines) >= mostLeft+len(cs.byKey) {
		maps.DeleteFunc(cs.lines, func(_ string, st *State) bool { return st == crowded || st.empty() })
	}
	if delete(cs.lines, key); st != nil {
		cs.lines[key] = st
	}
}

// guess says what is known of a lock that a claim of this process enters: that its line was left empty, without a mark,
// when it was seen last, which it says once; or nothing. Of a line that was crowded something is known.
func (cs *claims) guess(key string) (free, unseen bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	st := cs.lines[key]
	switch {
	case st == nil:
		return false, len(cs.byKey[key]) == 1
	case !st.empty() || st.Mark+st.MarkedBy != "":
		return false, false
	}
	delete(cs.lines, key)
	return true, false
}

// recall takes the line of key that was kept, with the time by now, or returns nil.
func (cs *claims) recall(key string, how recall) *State {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	st := cs.lines[key]
	if st == nil || st == crowded || how == never || (how == enters) != st.empty() {
		return nil
	}
	delete(cs.lines, key)
	age := cs.clock.Since(st.sent)
	recalled := *st
	recalled.recalled, recalled.wall = true, st.read.Add(age)
	switch {
	case how == enters && age <= leftFor && st.took <= leftSlack && st.unread < unread:
		recalled.Now = recalled.wall // later than the store's clock, by st.took at most
		recalled.unread++
	case how == leaves: // what ends by now is seen by the store
	default:
		return nil
	}
	return &recalled
}

// recall returns the line of key as it was seen last, unless another step of it is under way, or it may not be used.
func (b *Backend) recall(key string, how recall) *State {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, running := b.queues[key]; running {
		return nil
	}
	return b.claims.recall(key, how)
}
