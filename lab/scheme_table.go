package lab

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/internal/history"
)

// table is a table of locks whose names are unique, and one lock in it. It lives in memory.
// Each statement is one step, as in a database.
type table struct {
	*stage
	row *row
}

type row struct {
	owner string // for people
	ends  time.Duration
}

func (t *table) insert(c *client) bool {
	answer := "1 row"
	if t.row != nil {
		answer = "duplicate name"
	} else {
		t.row = &row{c.name, c.now() + lease}
	}
	c.record(fmt.Sprintf("INSERT ('lock', '%s', now + %d) → %s", c.name, seconds, answer))
	return answer == "1 row"
}

// delete deletes the row if it matches, which shown says.
func (t *table) delete(shown string, matches func(row) bool) {
	n := 0
	if t.row != nil && matches(*t.row) {
		t.row, n = nil, 1
	}
	t.record(fmt.Sprintf("DELETE WHERE %s → %d", shown, n))
}

func (t *table) look() []Text {
	if t.row == nil {
		return nil
	}
	left := max(0, t.row.ends-t.now()+time.Second-1) / time.Second
	return []Text{same(fmt.Sprintf("'lock', '%s' (%ds)", t.row.owner, left))}
}

// deleteByName deletes the row of the lock, whosever it is.
func deleteByName(t *table, _ *client) { t.delete("name = 'lock'", func(row) bool { return true }) }

var uniqueRow = Experiment{
	Breaks: []history.Rule{history.Exclusion}, scheme: slowDelete(deleteByName), ours: slowRelease,
}

// slowDelete is the schedule of a release that arrives when the row has expired.
func slowDelete(release func(*table, *client)) func(*stage) {
	return func(s *stage) {
		t := &table{stage: s}
		s.holds = t.look
		a, b, c := s.client(nil, "A"), s.client(nil, "B"), s.client(nil, "C")
		a.step("inserts the row: has the lock for 30s", "插入这一行：拿到锁 30 秒", a.locks(t.insert))
		a.step("has finished; its DELETE is on its way for long", "干完了，DELETE 在路上耽搁很久", a.unlocks(func(*client) {
			s.passes(lease, "30s pass", "过了 30 秒")
			s.step("the cleaner deletes what has expired", "清理任务删掉过期的行", func() {
				t.delete("ends < now", func(r row) bool { return r.ends < s.now() })
			})
			b.step("inserts the row: has the lock", "插入这一行：拿到锁", b.locks(t.insert))
			a.step("now its DELETE arrives, and deletes what is B's", "DELETE 这时才到，删掉的是 B 的行")
			release(t, a)
		}))
		c.step("inserts the row: B and C are both inside", "插入这一行：B、C 同时在里面", c.comes(t.insert))
	}
}
