package swapsql

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/swaplock"
)

// A claim that is bound to a transaction of the program has a lease that never ends. It is in line for as long as
// that transaction holds a lock of the database, which ends with the transaction or its connection, after its changes
// are seen by others. Each reading of the line looks whether that lock is free, by a statement that does not wait.

// bound is the end of the lease of a bound claim: further than any other, and still a time. On MariaDB and MySQL the
// number of its row in fencelock_binding is added.
const bound int64 = 1 << 53

const (
	// lookAgain is after how long a line with a bound claim is looked at again, and boundFor the rest of its lease
	// that a reading tells.
	lookAgain = 100 * time.Millisecond
	boundFor  = 10 * time.Second
)

const (
	// On PostgreSQL it is an advisory lock whose number is made of the claim's ID, so nobody else wants it. Those who
	// look share it, so nobody takes another one for the transaction.
	bindSQL = `UPDATE fencelock_lease SET ending = ?{int}
WHERE of_key = ? AND id = ? AND ending > {now} AND NOT {unlocked}`
	unboundSQL = `UPDATE fencelock_lease SET ending = 1
WHERE of_key = ? AND ending = ?{int} AND {unlocked} RETURNING {hex}id{/hex}`
	holdSQL = `SELECT CASE WHEN pg_advisory_xact_lock(hashtextextended($3::text, 0)) IS NULL THEN false
	ELSE EXISTS (SELECT FROM fencelock_swap WHERE lock_key = $1::bytea AND version >= $2::bigint) END`
	// On MariaDB and MySQL it is the lock on a row. It is looked for in FROM, with a LIMIT, so that it is a table of
	// its own: a row that is locked is skipped there, and one that is not stays locked until the statement ends.
	// Rows are added behind all others: where a page of rows is split, InnoDB has a transaction that locks a row
	// beside the cut lock the gap as well, and a row that another adds there would wait for that transaction.
	bindableSQL = `INSERT INTO fencelock_binding (since) {values}{now}{end}`
	bindMySQL   = `UPDATE fencelock_lease SET ending = ?, renewals = renewals + 1
WHERE of_key = ? AND id = ? AND ending > {now} AND {alone} AND (SELECT COUNT(*) FROM (
	SELECT n FROM fencelock_binding WHERE n = ? LIMIT 1 FOR UPDATE SKIP LOCKED) unlocked) = 0`
	unbindMySQL = `UPDATE fencelock_lease l JOIN (
	SELECT n FROM fencelock_binding WHERE n IN (%s) LIMIT 1000 FOR UPDATE SKIP LOCKED) unlocked ON
	l.ending = ? + unlocked.n
SET l.ending = 1 WHERE l.of_key = ? AND {alone}`
	// A binding is kept while a lease is bound to it: whoever settles that line ends the lease by it.
	forgetBindingsSQL = `SELECT n FROM (SELECT n FROM fencelock_binding
	WHERE n > CAST(? AS SIGNED) AND since < {now} - 86400000000 AND {alone} ORDER BY n LIMIT 200
	FOR UPDATE SKIP LOCKED) unlocked WHERE {alone}`
	boundSQL         = `SELECT ending - ? FROM fencelock_lease WHERE ending > ? AND {alone}`
	forgetBindingSQL = `DELETE FROM fencelock_binding WHERE n = CAST(? AS SIGNED) AND {alone}`
	// searchSQL finds the keys in whose lines a text occurs.
	searchSQL = `SELECT {hex}lock_key{/hex} FROM fencelock_swap
WHERE ({in}(line, ?{txt}) > 0 OR {in}(arrivals, ?{txt}) > 0) AND {alone} LIMIT 1000`
)

// Bindable makes what a transaction locks to keep a claim, and returns its number: 0 on PostgreSQL, where the lock is
// named after the claim.
func (s *Store) Bindable(ctx context.Context, key string) (n int64, err error) {
	if s.d.kind != mysql {
		return 0, nil
	}
	st := s.statement("bind the claim on", key, bindableSQL)
	st.Writes, st.Inserted = true, &n
	_, err = s.conns.Run(ctx, st)
	return n, err
}

// Bind has the transaction that holds the claim's lock of the database keep the claim in line. It reports whether
// the claim has a lease and the lock is held.
func (s *Store) Bind(ctx context.Context, key, id string, number int64) (bool, error) {
	text, args := bindSQL, []any{bound + number, []byte(key), []byte(id)}
	if s.d.kind == mysql {
		text, args = bindMySQL, append(args, number)
	}
	n, err := s.write(ctx, "bind the claim on", key, text, args...)
	return n > 0, err
}

// Hold is a query for the transaction, which takes the claim's lock of the database. Its answer is true if the
// transaction sees the line as it was at that version, or later.
func (s *Store) Hold(key, id string, number int64, version string) (text string, args []any, err error) {
	if s.d.kind == mysql {
		return s.word(fmt.Sprintf("SELECT COUNT(*) FROM fencelock_binding WHERE n = %d FOR UPDATE", number)), nil, nil
	}
	v, err := readVersion(version)
	return s.word(holdSQL), []any{[]byte(key), v.number, id}, err
}

// Search returns the keys in whose lines a text of letters and digits occurs.
func (s *Store) Search(ctx context.Context, text string) ([]string, error) {
	return s.keys(ctx, "search the lines", searchSQL, text, text)
}

// unbind ends the leases of claims of key whose transactions have ended, and has the line be looked at again if
// others go on.
func (s *Store) unbind(ctx context.Context, key string, arrivals int, st *swaplock.State) error {
	var numbers []any
	for id, end := range st.Records {
		if n := end.UnixMicro() - bound; n >= 0 {
			numbers = append(numbers, n)
			st.Records[id] = st.Now.Add(boundFor)
		}
	}
	if numbers == nil {
		return nil
	}
	st.Soon = lookAgain
	if s.d.kind == mysql {
		n, err := s.write(ctx, "look for transactions that lock", key, strings.Replace(unbindMySQL, "%s",
			strings.Repeat("?, ", len(numbers)-1)+"?", 1), append(numbers, bound, []byte(key))...)
		if n > 0 && err == nil {
			*st, err = s.Read(ctx, key, arrivals)
		}
		return err
	}
	q := s.statement("look for transactions that lock", key, unboundSQL, []byte(key), bound)
	q.Writes = true
	ids, err := s.column(ctx, q)
	for _, id := range ids {
		st.Records[id] = fromMicros(1)
	}
	return err
}

// forgetBindings removes old rows that no transaction locks and no lease needs.
func (s *Store) forgetBindings(ctx context.Context) error {
	if s.d.kind != mysql {
		return nil
	}
	return s.each(ctx, "forget bindings", forgetBindingsSQL, nil, func(numbers []string) error {
		needed, err := s.keys(ctx, "list the leases of transactions", boundSQL, bound, bound)
		for _, n := range numbers {
			if err == nil && !slices.Contains(needed, n) {
				_, err = s.write(ctx, "forget bindings", "", forgetBindingSQL, n)
			}
		}
		return err
	})
}
