package swapsql

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/swaplock"
)

// A claim that is bound to a transaction of the program has a lease that never ends. It is in line for as long as
// that transaction holds a lock of the database, which ends with the transaction or its connection, after its changes
// are seen by others. Each reading of the line looks whether that lock is free, by a statement that does not wait.

// bound is the end of the lease of a bound claim: further than any other, and still a time.
const bound = 1 << 53

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
	bindableSQL = `INSERT INTO fencelock_binding (id, since) {values}?, {now}{end}`
	bindMySQL   = `UPDATE fencelock_lease SET ending = ?, renewals = renewals + 1
WHERE of_key = ? AND id = ? AND ending > {now} AND {alone} AND (SELECT COUNT(*) FROM (
	SELECT id FROM fencelock_binding WHERE id = ? LIMIT 1 FOR UPDATE SKIP LOCKED) unlocked) = 0`
	unbindMySQL = `UPDATE fencelock_lease l JOIN (
	SELECT id FROM fencelock_binding WHERE id IN (%s) LIMIT 1000 FOR UPDATE SKIP LOCKED) unlocked ON l.id = unlocked.id
SET l.ending = 1 WHERE l.of_key = ? AND l.ending = ? AND {alone}`
	// A binding is kept while a lease is bound to it: whoever settles that line ends the lease by it.
	forgetBindingsSQL = `SELECT lock_key FROM (SELECT id AS lock_key FROM fencelock_binding
	WHERE id > ? AND since < {now} - 86400000000 AND {alone} ORDER BY id LIMIT 200 FOR UPDATE SKIP LOCKED) unlocked
WHERE {alone}`
	boundSQL         = `SELECT {hex}id{/hex} FROM fencelock_lease WHERE ending = ? AND {alone}`
	forgetBindingSQL = `DELETE FROM fencelock_binding WHERE id = ? AND {alone}`
	// searchSQL finds the keys in whose lines a text occurs.
	searchSQL = `SELECT {hex}lock_key{/hex} FROM fencelock_swap
WHERE ({in}(line, ?{txt}) > 0 OR {in}(arrivals, ?{txt}) > 0) AND {alone} LIMIT 1000`
)

// Bindable makes what a transaction locks to keep the claim with id.
func (s *Store) Bindable(ctx context.Context, id string) error {
	if s.d.kind != mysql {
		return nil
	}
	_, err := s.write(ctx, "bind the claim", "", bindableSQL, []byte(id))
	return err
}

// Bind has the transaction that holds the claim's lock of the database keep the claim in line. It reports whether
// the claim has a lease and the lock is held.
func (s *Store) Bind(ctx context.Context, key, id string) (bool, error) {
	text, args := bindSQL, []any{int64(bound), []byte(key), []byte(id)}
	if s.d.kind == mysql {
		text, args = bindMySQL, append(args, []byte(id))
	}
	n, err := s.write(ctx, "bind the claim on", key, text, args...)
	return n > 0, err
}

// Hold is a query for the transaction, which takes the claim's lock of the database. Its answer is true if the
// transaction sees the line as it was at that version, or later.
func (s *Store) Hold(key, id, version string) (text string, args []any, err error) {
	if s.d.kind == mysql {
		return s.word("SELECT COUNT(*) FROM fencelock_binding WHERE id = X'" + hex.EncodeToString([]byte(id)) +
			"' FOR UPDATE"), nil, nil
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
	var some []any
	for id, end := range st.Records {
		if !end.Before(fromMicros(bound)) {
			some = append(some, []byte(id))
			st.Records[id] = st.Now.Add(boundFor)
		}
	}
	if some == nil {
		return nil
	}
	st.Soon = lookAgain
	if s.d.kind == mysql {
		n, err := s.write(ctx, "look for transactions that lock", key, strings.Replace(unbindMySQL, "%s",
			strings.Repeat("?, ", len(some)-1)+"?", 1), append(some, []byte(key), int64(bound))...)
		if n > 0 && err == nil {
			*st, err = s.Read(ctx, key, arrivals)
		}
		return err
	}
	q := s.statement("look for transactions that lock", key, unboundSQL, []byte(key), int64(bound))
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
	return s.each(ctx, "forget bindings", forgetBindingsSQL, nil, func(ids []string) error {
		needed, err := s.keys(ctx, "list the leases of transactions", boundSQL, int64(bound))
		for _, id := range ids {
			if err == nil && !slices.Contains(needed, id) {
				_, err = s.write(ctx, "forget bindings", "", forgetBindingSQL, []byte(id))
			}
		}
		return err
	})
}
