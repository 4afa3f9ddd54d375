package swapsql

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/swaplock"
)

// The statements of a swap. The text of a swap that makes or removes leases depends on the dialect.
const (
	insertSQL = `INSERT INTO fencelock_swap
	(lock_key, version, last, mark, marked_by, holder, expires, renewals, line, arrivals, came, open_until, capacity,
	news)
{values}?, ?, ?, ?, ?, ?, ?, 0, ?, ?, {came}, ?, ?, ?{end}`
	// The order matters: MariaDB and MySQL read what they have assigned.
	setSQL = ` SET {stamp}expires = CASE WHEN holder = ? THEN {max}(expires, ?) ELSE ? END, holder = ?,
	version = ?, last = {max}(last, ?), mark = ?, marked_by = ?, line = ?,
	arrivals = substr(arrivals, ?), open_until = ?, capacity = ?, news = {told}`
	ifSQL     = ` WHERE lock_key = ? AND version = ? AND {alone}`
	lastSQL   = ` AND last = ?`
	endedSQL  = ` AND expires = ?`
	beforeSQL = ` AND {now} < ?`
	// A line that is left empty does not wait for the disk: if the server crashes within a second, the lock is held
	// until its lease ends.
	leaveFreeSQL = `UPDATE fencelock_swap SET {stamp}expires = 0, holder = {no}, version = ?, line = '',
	arrivals = substr(arrivals, ?), open_until = 0, capacity = 0{lazily}
WHERE lock_key = ? AND version = ? AND last = ? AND {now} < ? AND {alone}`

	// On PostgreSQL one statement changes several tables.
	swappedSQL = `WITH swapped AS (%s RETURNING 1)`
	dropSQL    = `, dropped AS (DELETE FROM fencelock_lease USING swapped WHERE of_key = ? AND (%s))`
	lendSQL    = `, lent AS (INSERT INTO fencelock_lease (of_key, id, ending, renewals)
	SELECT ?::bytea, decode(i, 'hex'), {now} + ttl, 0
	FROM unnest(?::text[], ?::bigint[]) AS u (i, ttl), swapped` + longerSQL + `)`
	tellSQL = `, unnest(?::text[]) AS n (channel) WHERE pg_notify(channel, '') IS NOT NULL`

	// MariaDB and MySQL update several tables at once. A lease that ends at 0 or before is not there. One that a swap
	// is about to begin ends at minus the time: nobody may forget it meanwhile, see overNowSQL.
	noLeaseSQL = `INSERT INTO fencelock_lease (of_key, id, ending, renewals)%s
ON DUPLICATE KEY UPDATE ending = CASE WHEN fencelock_lease.ending <= {now} THEN -{now} ELSE fencelock_lease.ending END`
	oneLeaseSQL = ` {values}?, ?, -{now}, 0{end}`
	joinSQL     = ` LEFT JOIN fencelock_lease ON of_key = lock_key AND id IN (%s)`
	leasesSQL   = `, ending = CASE%s ELSE ending END`

	// SQLite makes a transaction of it.
	dropOneSQL = `DELETE FROM fencelock_lease WHERE of_key = ? AND id = ? AND {alone}`
	lendOneSQL = `INSERT INTO fencelock_lease (of_key, id, ending, renewals, came)
VALUES (?, ?, {now} + ?, 0, {clock})` + longerSQL

	longerSQL = ` ON CONFLICT (of_key, id) DO UPDATE SET {stamp}ending = {max}(fencelock_lease.ending, excluded.ending),
	renewals = fencelock_lease.renewals + 1`
)

// Swap writes the row of key, and its leases, if the conditions of c hold.
func (s *Store) Swap(ctx context.Context, key string, c *swaplock.Change) (newVersion string, err error) {
	if c.If == "" {
		return s.insert(ctx, key, c)
	}
	v, err := readVersion(c.If)
	if err != nil {
		return "", err
	}
	if err := s.makeLeases(ctx, key, c.Lend); err != nil {
		return "", err
	}
	taken := 0 // bytes of arrivals
	at, _ := c.Seen.(ends)
	if c.Arrivals > 0 {
		taken = at[c.Arrivals-1]
	}
	free := leavesFree(c)
	if free {
		if done, err := s.freeInBatch(ctx, key, v.number, int64(taken), c); done || err != nil {
			c.Next = ends(nil)
			return version{number: v.number + 1}.String(), err
		}
	}
	s.under.Add(1)
	defer s.under.Add(-1)
	write := s.swap
	if free {
		write = s.leaveFree
	}
	st := write(key, v.number, int64(taken), c)
	st.Only = v.opening
	n, err := s.conns.Run(ctx, st)
	if n == 0 || err != nil {
		return "", lost(st, err)
	}
	at = slices.Clone(at[c.Arrivals:])
	for i := range at {
		at[i] -= taken
	}
	c.Next = at
	return version{v.number + 1, v.opening}.String(), nil
}

// leavesFree reports whether c leaves nothing in the line of a key without a mark. Then no lease in a record ends, and
// there is nobody to tell.
func leavesFree(c *swaplock.Change) bool {
	return len(c.Document)+len(c.Holder)+len(c.Mark)+len(c.MarkedBy)+len(c.Lend)+len(c.Drop) == 0 &&
		c.IfLast != 0 && c.IfLast == c.Last && c.Ended.IsZero() && !c.Before.IsZero()
}

// makeLeases makes rows on MariaDB and MySQL, whose UPDATE makes none.
func (s *Store) makeLeases(ctx context.Context, key string, ls []swaplock.Lease) error {
	if s.d.kind != mysql || len(ls) == 0 {
		return nil
	}
	var args []any
	for _, l := range slices.SortedFunc(slices.Values(ls), byID) {
		args = append(args, []byte(key), []byte(l.ID))
	}
	text := fmt.Sprintf(noLeaseSQL, oneLeaseSQL+strings.Repeat(" UNION ALL"+oneLeaseSQL, len(ls)-1))
	_, err := s.write(ctx, "make leases of", key, text, args...)
	return err
}

// insert writes the first row of key, and one that makes leases in two steps: there is nobody in line yet.
func (s *Store) insert(ctx context.Context, key string, c *swaplock.Change) (newVersion string, err error) {
	first := time.Now().UnixMicro()
	content := c.Content
	if len(c.Lend) > 0 {
		content = swaplock.Content{}
	}
	st := s.statement("write the line of", key, insertSQL, []byte(key), first, content.Last, []byte(content.Mark),
		[]byte(content.MarkedBy), []byte(content.Holder), micros(content.Expires), ascii(content.Document), "",
		floorMicros(content.Open), content.Capacity, "")
	st.Writes = true
	n, err := s.conns.Run(ctx, st)
	newVersion = version{first, st.Opening}.String()
	switch {
	case n == 0 || err != nil:
		return "", lost(st, err)
	case len(c.Lend) > 0:
		next := *c
		next.If = newVersion
		return s.Swap(ctx, key, &next)
	}
	return newVersion, nil
}

// lost is the error of a swap that has changed nothing.
func lost(st *Statement, err error) error {
	if err == nil && st.Resent {
		err = errResent(st.Key)
	}
	return err
}

func errResent(key string) error {
	return fmt.Errorf("the connection broke, and it is not known whether the line of %.80q was written: try again", key)
}

// leaveFree is the statement of a swap that leavesFree.
func (s *Store) leaveFree(key string, seen, taken int64, c *swaplock.Change) *Statement {
	st := s.statement("write the line of", key, leaveFreeSQL, seen+1, taken+1, []byte(key), seen, c.Last,
		c.Before.UnixMicro())
	st.Writes = true
	return st
}

// swap is the statement of any other swap.
func (s *Store) swap(key string, seen, taken int64, c *swaplock.Change) *Statement {
	b := &builder{s: s, key: []byte(key)}
	holder, expires := []byte(c.Holder), micros(c.Expires)
	b.add("UPDATE fencelock_swap")
	if s.d.kind == mysql && len(c.Lend)+len(c.Drop) > 0 {
		b.join(c)
	}
	b.add(setSQL, holder, expires, expires, holder, seen+1, c.Last, []byte(c.Mark), []byte(c.MarkedBy),
		ascii(c.Document), taken+1, floorMicros(c.Open), c.Capacity, told(seen+1, c))
	if s.d.kind == mysql && len(c.Lend)+len(c.Drop) > 0 {
		b.leases(c)
	}
	b.add(ifSQL, b.key, seen)
	if c.IfLast != 0 {
		b.add(lastSQL, c.IfLast)
	}
	if !c.Ended.IsZero() {
		b.add(endedSQL, micros(c.Ended))
	}
	if !c.Before.IsZero() {
		b.add(beforeSQL, c.Before.UnixMicro())
	}
	st := &Statement{
		What: "write the line of", Key: key, Keeps: true, Writes: true,
		Tells: len(c.News) > 0 && len(c.Document) > 0, // else there is nobody to tell
	}
	switch {
	case s.d.kind == postgres:
		b.tables(c, st)
	case s.d.kind == sqlite:
		b.then(c, st)
	}
	st.Text, st.Args = s.word(b.text.String()), b.args
	return st
}

// builder gathers a statement.
type builder struct {
	s    *Store
	key  []byte
	text strings.Builder
	args []any
}

func (b *builder) add(text string, args ...any) {
	b.text.WriteString(text)
	b.args = append(b.args, args...)
}

// join names the leases that the swap changes, for MariaDB and MySQL.
func (b *builder) join(c *swaplock.Change) {
	var ids []any
	for _, id := range c.Drop {
		ids = append(ids, []byte(id))
	}
	for _, l := range c.Lend {
		ids = append(ids, []byte(l.ID))
	}
	b.add(strings.Replace(joinSQL, "%s", "?"+strings.Repeat(", ?", len(ids)-1), 1), ids...)
}

// leases ends and makes those.
func (b *builder) leases(c *swaplock.Change) {
	var cases strings.Builder
	var args []any
	for _, id := range c.Drop {
		cases.WriteString(" WHEN id = ? THEN 0")
		args = append(args, []byte(id))
	}
	for _, l := range c.Lend {
		cases.WriteString(" WHEN id = ? THEN {max}(ending, {now} + ?)")
		args = append(args, []byte(l.ID), ttl(l))
	}
	b.add(strings.Replace(leasesSQL, "%s", cases.String(), 1), args...)
}

// tables has PostgreSQL change the leases, and tell the processes that listen, by the same statement. While nobody is
// in line there is nobody to tell.
func (b *builder) tables(c *swaplock.Change, st *Statement) {
	var tell []string
	for _, n := range c.News {
		if channel := b.s.channel(n.Node); n.Node != "" && len(c.Document) > 0 && !slices.Contains(tell, channel) {
			tell = append(tell, channel)
		}
	}
	if len(c.Lend)+len(c.Drop)+len(tell) == 0 {
		return
	}
	swap := b.text.String()
	b.text.Reset()
	b.add(strings.Replace(swappedSQL, "%s", swap, 1))
	if len(c.Drop) > 0 {
		args := []any{b.key}
		for _, id := range c.Drop {
			args = append(args, []byte(id))
		}
		b.add(strings.Replace(dropSQL, "%s", anyID(len(c.Drop)), 1), args...)
	}
	if len(c.Lend) > 0 {
		b.add(lendSQL, b.key, array(c.Lend, leaseID), array(c.Lend, leaseTTL))
	}
	b.add(" SELECT 1 FROM swapped")
	if tell != nil {
		b.add(tellSQL, "{"+strings.Join(tell, ",")+"}")
	}
	st.Row = func(scan func(to ...any) error) error { return scan(new(int)) }
}

// then has SQLite change the leases in the same transaction.
func (b *builder) then(c *swaplock.Change, st *Statement) {
	for _, id := range c.Drop {
		st.Then = append(st.Then, b.s.statement("", "", dropOneSQL, b.key, []byte(id)))
	}
	for _, l := range c.Lend {
		st.Then = append(st.Then, b.s.statement("", "", lendOneSQL, b.key, []byte(l.ID), ttl(l)))
	}
}

// array writes an array as a text that every driver can send.
func array(ls []swaplock.Lease, of func(l swaplock.Lease) string) string {
	elements := make([]string, len(ls))
	for i, l := range ls {
		elements[i] = of(l)
	}
	return "{" + strings.Join(elements, ",") + "}"
}

func byID(a, b swaplock.Lease) int { return cmp.Compare(a.ID, b.ID) }

func leaseKey(l swaplock.Lease) string { return `"` + hex.EncodeToString([]byte(l.Key)) + `"` }
func leaseID(l swaplock.Lease) string  { return `"` + hex.EncodeToString([]byte(l.ID)) + `"` }
func leaseTTL(l swaplock.Lease) string { return strconv.FormatInt(ttl(l), 10) }
