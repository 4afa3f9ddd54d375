package swapsql

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/swaplock"
)

// mostAtOnce is how many leases, IDs or keys one statement names, and mostRows how many leases on SQLite, as rows: it
// takes no deeper expression than a thousand, and 32,766 arguments.
const (
	mostAtOnce = 100
	mostRows   = 1024
)

const (
	holdersSQL = `UPDATE fencelock_swap SET {stamp}expires = {max}(expires, {now} + ?), renewals = renewals + 1
WHERE (%holders) AND expires > {now} AND {alone}`
	recordsSQL = `UPDATE fencelock_lease SET {stamp}ending = {max}(ending, {now} + ?), renewals = renewals + 1
WHERE (%records) AND ending > {now} AND {alone}`
	aliveSQL = `SELECT lock_key, holder FROM fencelock_swap WHERE (%holders) AND expires > {now} AND {alone}
UNION ALL SELECT of_key, id FROM fencelock_lease WHERE (%records) AND ending > {now} AND {alone} LIMIT 1000`
	// On PostgreSQL all leases are one statement.
	renewAllSQL = `WITH v AS (
	SELECT decode(k, 'hex') AS lock_key, decode(i, 'hex') AS id, ttl, n
	FROM unnest(?::text[], ?::text[], ?::bigint[]) WITH ORDINALITY AS u (k, i, ttl, n)),
hl AS (SELECT l.lock_key, v.n, v.ttl, v.id FROM fencelock_swap l JOIN v ON l.lock_key = v.lock_key AND l.holder = v.id
	ORDER BY l.lock_key FOR UPDATE OF l),
rl AS (SELECT l.of_key, v.n, v.ttl, v.id FROM fencelock_lease l JOIN v ON l.of_key = v.lock_key AND l.id = v.id
	ORDER BY l.of_key, l.id FOR UPDATE OF l),
h AS (UPDATE fencelock_swap l SET expires = GREATEST(l.expires, {now} + v.ttl), renewals = l.renewals + 1
	FROM hl v WHERE l.lock_key = v.lock_key AND l.holder = v.id AND l.expires > {now} RETURNING v.n),
r AS (UPDATE fencelock_lease l SET ending = GREATEST(l.ending, {now} + v.ttl), renewals = l.renewals + 1
	FROM rl v WHERE l.of_key = v.of_key AND l.id = v.id AND l.ending > {now} RETURNING v.n)
SELECT n FROM h UNION ALL SELECT n FROM r`
)

// Renew has leases end later.
func (s *Store) Renew(ctx context.Context, ls []swaplock.Lease) (alive []bool, err error) {
	if s.d.kind == postgres {
		return s.renewAll(ctx, ls)
	}
	alive = make([]bool, len(ls))
	most := mostAtOnce
	if s.d.kind == sqlite {
		most = mostRows
	}
	for same := range inOrder(ls, most) {
		some := make([]swaplock.Lease, len(same))
		for i, n := range same {
			some[i] = ls[n]
		}
		is, err := s.renewSome(ctx, some)
		if err != nil {
			return nil, err
		}
		for i, n := range same {
			alive[n] = is(some[i])
		}
	}
	return alive, nil
}

// inOrder yields the numbers of at most so many leases of one length each. Two programs that renew the same leases lock
// them in one order.
func inOrder(ls []swaplock.Lease, most int) func(yield func([]int) bool) {
	order := make([]int, len(ls))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(ls[i].TTL, ls[j].TTL), cmp.Compare(ls[i].Key, ls[j].Key))
	})
	return func(yield func([]int) bool) {
		for len(order) > 0 {
			n := 1
			for n < min(len(order), most) && ls[order[n]].TTL == ls[order[0]].TTL {
				n++
			}
			if !yield(order[:n]) {
				return
			}
			order = order[n:]
		}
	}
}

// renewSome renews leases of one length. If fewer rows have changed than there are leases, it asks which
// are alive.
func (s *Store) renewSome(ctx context.Context, ls []swaplock.Lease) (is func(swaplock.Lease) bool, err error) {
	all := func(swaplock.Lease) bool { return true }
	holders, err := s.renewal(ctx, holdersSQL, ls)
	if err != nil || holders == int64(len(ls)) {
		return all, err
	}
	records, err := s.renewal(ctx, recordsSQL, ls)
	if err != nil || holders+records == int64(len(ls)) {
		return all, err
	}
	found := map[[2]string]bool{}
	q := s.named(aliveSQL, ls)
	q.Begin = func() { clear(found) }
	q.Row = func(scan func(to ...any) error) error {
		var key, id []byte
		err := scan(&key, &id)
		found[[2]string{string(key), string(id)}] = true
		return err
	}
	_, err = s.conns.Run(ctx, q)
	return func(l swaplock.Lease) bool { return found[[2]string{l.Key, l.ID}] }, err
}

// renewal runs a statement that renews leases of one length.
func (s *Store) renewal(ctx context.Context, text string, ls []swaplock.Lease) (int64, error) {
	st := s.named(text, ls, ttl(ls[0]))
	st.Writes = true
	return s.conns.Run(ctx, st)
}

// named is a statement that names leases. SQLite takes them as rows, whose number is a power of two, so that few texts
// are prepared.
func (s *Store) named(text string, ls []swaplock.Lease, args ...any) *Statement {
	pairs := make([]any, 0, 2*len(ls))
	for _, l := range ls {
		pairs = append(pairs, []byte(l.Key), []byte(l.ID))
	}
	if s.d.kind == sqlite {
		n := 1 << bits.Len(uint(len(ls)-1))
		for range n - len(ls) {
			pairs = append(pairs, pairs[0], pairs[1])
		}
		text = "WITH v (k, i) AS (VALUES (?, ?)" + strings.Repeat(", (?, ?)", n-1) + ") " + strings.NewReplacer(
			"%holders", "lock_key IN (SELECT k FROM v) AND (lock_key, holder) IN (SELECT k, i FROM v)",
			"%records", "(of_key, id) IN (SELECT k, i FROM v)").Replace(text)
		return s.statement("renew leases", "", text, append(pairs, args...)...)
	}
	for range strings.Count(text, "%") {
		args = append(args, pairs...)
	}
	any := func(one string) string { return strings.Repeat(one+" OR ", len(ls)-1) + one }
	text = strings.NewReplacer("%holders", any("lock_key = ? AND holder = ?"),
		"%records", any("of_key = ? AND id = ?")).Replace(text)
	return s.statement("renew leases", "", text, args...)
}

// renewAll renews leases by one statement, which locks them in the order of their keys, as all programs do.
func (s *Store) renewAll(ctx context.Context, ls []swaplock.Lease) (alive []bool, err error) {
	q := s.statement("renew leases", "", renewAllSQL, array(ls, leaseKey), array(ls, leaseID), array(ls, leaseTTL))
	q.Writes = true
	q.Begin = func() { alive = make([]bool, len(ls)) }
	q.Row = func(scan func(to ...any) error) error {
		var n int
		err := scan(&n)
		if n > 0 && n <= len(ls) {
			alive[n-1] = true
		}
		return err
	}
	_, err = s.conns.Run(ctx, q)
	return alive, err
}
