package memlock

import (
	"container/heap"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// rests are the ids laid to rest: those that must not enter again for a while,
// because they have left before a delayed Enter arrived, or because an operator
// ended them.
type rests struct {
	byID map[name]*rest
	due  queue
}

type name struct{ key, id string }

// rest keeps one id out until an instant, and says why.
type rest struct {
	name
	until time.Duration
	gone  driver.ErrGone
	index int // in rests.due
}

// lay lays an id to rest. An earlier rest of it is only ever prolonged, and what
// an operator wrote stays the reason.
func (r *rests) lay(key, id string, until time.Duration, gone driver.ErrGone) {
	old := r.byID[name{key, id}]
	if old == nil {
		if r.byID == nil {
			r.byID = make(map[name]*rest)
		}
		old = &rest{name: name{key, id}, until: until, gone: gone}
		r.byID[old.name] = old
		heap.Push(&r.due, old)
		return
	}
	if gone.Broken {
		old.gone = gone
	}
	old.until = max(old.until, until)
	heap.Fix(&r.due, old.index)
}

// find returns the rest of an id, or nil. It first forgets those that are over.
func (r *rests) find(key, id string, now instant) *rest {
	for len(r.due) > 0 && r.due[0].until <= now.mono {
		delete(r.byID, heap.Pop(&r.due).(*rest).name)
	}
	if len(r.byID) == 0 {
		return nil
	}
	return r.byID[name{key, id}]
}

// queue orders rests by their end, for package heap.
type queue []*rest

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].until < q[j].until }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(x any) {
	r := x.(*rest)
	r.index = len(*q)
	*q = append(*q, r)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	r := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return r
}
