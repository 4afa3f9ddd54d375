package lab

import "github.com/fencelock/fencelock/internal/history"

// Belief says whether a client believes that it holds a lock.
type Belief int

// The beliefs, from none to the one that must not be.
const (
	Nothing Belief = iota
	Waits
	Stopped // it believed so when it was stopped
	Holds
	Clashes // it believes that it holds the lock, and another client believes so, too
)

// Beliefs returns what each actor believes at the end of each step.
func (r Run) Beliefs() []map[string]Belief {
	all := make([]map[string]Belief, len(r.Steps))
	for i := range r.Steps {
		b := beliefs{
			waits: map[wish]bool{}, reads: map[wish]bool{},
			holds: map[wish]map[string]bool{}, stopped: map[string]bool{},
		}
		for _, e := range r.Events {
			if r.stepOf(e) <= i {
				b.apply(e)
			}
		}
		all[i] = b.ofActors()
	}
	return all
}

// stepOf returns the step that e belongs to. A lock that an actor gets while another one acts is part of its own step
// if that is the next one: which of both came first is chance.
func (r Run) stepOf(e history.Event) int {
	i := 0
	for i+1 < len(r.Steps) && e.At >= r.Steps[i+1].begun {
		i++
	}
	gets := e.Op == history.Believe && r.Steps[i].Actor != e.Process
	if gets && i+1 < len(r.Steps) && r.Steps[i+1].Actor == e.Process {
		i++
	}
	return i
}

// beliefs are those of all actors at one moment.
type beliefs struct {
	waits, reads map[wish]bool
	holds        map[wish]map[string]bool // with the handles
	stopped      map[string]bool
}

func (b beliefs) apply(e history.Event) {
	w := wish{e.Process, e.Key}
	switch e.Op {
	case history.Enter:
		b.waits[w], b.reads[w] = true, e.Kind == history.Shared
	case history.Believe:
		delete(b.waits, w)
		if b.holds[w] == nil {
			b.holds[w] = map[string]bool{}
		}
		b.holds[w][e.Handle] = true
	case history.Refused:
		delete(b.waits, w)
	case history.Release:
		delete(b.holds[w], e.Handle)
	case history.Loss:
		delete(b.holds, w)
		delete(b.waits, w)
	case history.Pause, history.Resume:
		b.stopped[e.Process] = e.Op == history.Pause
	case history.Crash:
		for w := range b.reads {
			if w.actor == e.Process {
				delete(b.holds, w)
				delete(b.waits, w)
			}
		}
	}
}

func (b beliefs) ofActors() map[string]Belief {
	all := map[string]Belief{}
	for w := range b.reads {
		all[w.actor] = max(all[w.actor], b.of(w))
	}
	return all
}

func (b beliefs) of(w wish) Belief {
	if len(b.holds[w]) == 0 {
		if b.waits[w] {
			return Waits
		}
		return Nothing
	}
	if b.stopped[w.actor] {
		return Stopped
	}
	for o, handles := range b.holds {
		both := o.key == w.key && o.actor != w.actor && len(handles) > 0 && !b.stopped[o.actor]
		if both && !(b.reads[o] && b.reads[w]) {
			return Clashes
		}
	}
	return Holds
}
