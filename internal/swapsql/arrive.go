package swapsql

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/swaplock"
)

// The arrivals of a key are a text to which one is appended for each, so that no arrival is in the way of
// another one, or of a swap. A State has their ends in it, by which a swap takes the first ones away.
const (
	freeSQL = `(f.line = '' AND f.arrivals = '')`
	// The clock is read once: everything else goes by what it was then.
	arriveSQL = `INSERT INTO fencelock_swap AS f (lock_key, version, last, mark, marked_by, holder, expires,
	renewals, line, arrivals, came, open_until, capacity, news)
SELECT ?{bytes}, n.now, n.now + ?{int} - 1, {no}, {no}, ?{bytes}, n.now + ?{int}, 0, '',
	'{"token":' || n.now || ',"at":' || n.now || ?{txt}, n.now, n.now * ?{int} + ?{int}, ?{int}, ''
FROM (SELECT {now} AS now) n WHERE 1 = 1
ON CONFLICT (lock_key) DO UPDATE SET
	version = CASE WHEN {free} THEN {max}(f.version + 1, excluded.version) ELSE f.version END,
	last = {max}(f.last + 1, excluded.came) + excluded.last - excluded.came,
	holder = CASE WHEN {free} THEN excluded.holder ELSE f.holder END,
	expires = CASE WHEN {free} THEN excluded.expires ELSE f.expires END,
	arrivals = f.arrivals || '{"token":' || {max}(f.last + 1, excluded.came) || ',"at":' || excluded.came || ?{txt},
	came = excluded.came,
	open_until = CASE WHEN {free} THEN excluded.open_until ELSE {min}(f.open_until, excluded.came + ?{int}) END,
	capacity = CASE WHEN {free} THEN excluded.capacity ELSE f.capacity END
WHERE {free} OR {now} < f.open_until * ?{int} AND f.capacity = excluded.capacity
	AND {in}(f.line, ?{txt}) = 0 AND {in}(f.arrivals, ?{txt}) = 0
RETURNING last, came, version, open_until, {hex}mark{/hex}, {hex}marked_by{/hex},
	CASE WHEN holder = ?{bytes} THEN 1 ELSE 0 END,
	length(arrivals), length(arrivals) - length(replace(arrivals, ',"at":', ''))
		+ length(line) - length(replace(line, '"token":', '""'))`

	// See take.
	takeSQL = `INSERT INTO fencelock_swap AS f (lock_key, version, last, mark, marked_by, holder, expires,
	renewals, line, arrivals, came, open_until, capacity, news)
VALUES (?, {clock}, {clock} + ? - 1, x'', x'', ?, {clock} + ?, 0, '',
	'{"token":' || {clock} || ',"at":' || {clock} || ?, {clock}, {clock} * ? + ?, ?, '')
ON CONFLICT (lock_key) DO UPDATE SET version = excluded.version, last = excluded.last, holder = excluded.holder,
	expires = excluded.expires, arrivals = excluded.arrivals, came = excluded.came,
	open_until = excluded.open_until, capacity = excluded.capacity
WHERE f.line = '' AND f.arrivals = '' AND f.marked_by = x'' AND f.version < excluded.version
	AND f.last < excluded.came`

	// Servers take a lock by a row that is there: a statement that could do more costs twice as much. The last
	// condition of MariaDB and MySQL reads the clock, and what is assigned goes by what it was then.
	takePostgres = `UPDATE fencelock_swap f SET version = n.now, last = n.now + ? - 1, holder = ?, expires = n.now + ?,
	arrivals = '{"token":' || n.now || ',"at":' || n.now || ?::text, came = n.now, open_until = n.now * ? + ?,
	capacity = ?
FROM (SELECT {now} AS now) n WHERE f.lock_key = ? AND f.line = '' AND f.arrivals = '' AND f.mark = ''
	AND f.version < n.now AND f.last < n.now RETURNING n.now`
	takeMySQL = `UPDATE fencelock_swap SET version = LAST_INSERT_ID(), last = LAST_INSERT_ID() + ? - 1, holder = ?,
	expires = LAST_INSERT_ID() + ?,
	arrivals = CONCAT('{"token":', LAST_INSERT_ID(), ',"at":', LAST_INSERT_ID(), ?), came = LAST_INSERT_ID(),
	open_until = LAST_INSERT_ID() * ? + ?, capacity = ?
WHERE lock_key = ? AND LENGTH(line) + LENGTH(arrivals) + LENGTH(mark) = 0 AND {alone}
	AND GREATEST(version, last) < LAST_INSERT_ID({now})`

	// MariaDB and MySQL return one number: what has become of the claim, and its token. It is chosen first, because
	// what comes behind an assignment may or may not see it. A key with a mark is left to a swap.
	arriveMySQL = `INSERT INTO fencelock_swap (lock_key, version, last, mark, marked_by, holder, expires,
	renewals, line, arrivals, came, open_until, capacity, news)
SELECT ?, n.now, LAST_INSERT_ID(n.now * 4 + 1) DIV 4 + ? - 1, X'', X'', ?, n.now + ?, 0, X'',
	CONCAT('{"token":', n.now, ',"at":', n.now, ?), n.now, n.now * ? + ?, ?, X''
FROM (SELECT {now} AS now FROM DUAL LIMIT 1) n WHERE {alone}
ON DUPLICATE KEY UPDATE
	came = IF(LAST_INSERT_ID(CASE
		WHEN LENGTH(line) + LENGTH(arrivals) + LENGTH(mark) = 0 AND last < VALUES(came) THEN VALUES(came) * 4 + 1
		WHEN VALUES(came) < open_until * ? AND LENGTH(line) + LENGTH(arrivals) > 0 AND capacity = VALUES(capacity)
			AND INSTR(line, ?) = 0 AND INSTR(arrivals, ?) = 0 THEN GREATEST(last + 1, VALUES(came)) * 4 + 2
		ELSE 0 END) = 0, came, VALUES(came)),
	holder = IF(MOD(LAST_INSERT_ID(), 4) = 1, VALUES(holder), holder),
	expires = IF(MOD(LAST_INSERT_ID(), 4) = 1, VALUES(expires), expires),
	version = IF(MOD(LAST_INSERT_ID(), 4) = 1, GREATEST(version + 1, VALUES(version)), version),
	open_until = CASE MOD(LAST_INSERT_ID(), 4) WHEN 1 THEN VALUES(open_until)
		WHEN 2 THEN LEAST(open_until, VALUES(came) + ?) ELSE open_until END,
	capacity = IF(MOD(LAST_INSERT_ID(), 4) = 1, VALUES(capacity), capacity),
	last = IF(LAST_INSERT_ID() = 0, last, LAST_INSERT_ID() DIV 4 + VALUES(last) - VALUES(came)),
	arrivals = IF(LAST_INSERT_ID() = 0, arrivals,
		CONCAT(arrivals, '{"token":', LAST_INSERT_ID() DIV 4, ',"at":', VALUES(came), ?))`
	messageSQL = `UPDATE fencelock_swap SET arrivals = {append}
WHERE lock_key = ? AND length(line) + length(arrivals) > 0 AND {alone}`
	withdrawSQL = `UPDATE fencelock_swap SET {stamp}news = {untold}, version = version + 1,
	arrivals = replace(arrivals, ?{txt}, '')
WHERE lock_key = ? AND {now} < open_until AND {in}(arrivals, ?{txt}) > 0 AND {alone}`
	// A claim that is still among the arrivals is not granted yet, so a change of this version is news.
	placeMySQL = `SELECT version, open_until, (LENGTH(line) - LENGTH(REPLACE(line, '"token":', '""'))
	+ LENGTH(before_it) - LENGTH(REPLACE(before_it, ',"at":', ''))) DIV 6 - 1
FROM (SELECT version, open_until, line, LEFT(arrivals, INSTR(arrivals, ?)) AS before_it FROM fencelock_swap
	WHERE lock_key = ? AND INSTR(arrivals, ?) > 0 AND {alone}) l WHERE {alone} LIMIT 1`
)

var arriveAnySQL = strings.ReplaceAll(arriveSQL, "{free}", freeSQL)

// arrival is one line of the arrivals of a key.
type arrival struct {
	Token    int64           `json:"token"`
	At       int64           `json:"at"` // µs since 1970
	Span     int64           `json:"span"`
	Capacity int64           `json:"capacity"`
	ID       string          `json:"id"`
	TTL      int64           `json:"ttl"` // µs
	WaitTTL  int64           `json:"wait_ttl"`
	Full     bool            `json:"full,omitempty"`
	Message  bool            `json:"message,omitempty"`
	Claim    json.RawMessage `json:"claim"`
}

// tail is an arrival as it is written down, but for the token and the time before it.
func tail(a *swaplock.Arrival) string {
	b := make([]byte, 0, 160+len(a.Claim))
	add := func(name string, n int64) { b = strconv.AppendInt(append(b, name...), n, 10) }
	add(`,"span":`, a.Span)
	add(`,"capacity":`, a.Capacity)
	b = append(append(append(b, `,"id":"`...), a.ID...), '"') // letters and digits
	add(`,"ttl":`, a.TTL.Microseconds())
	add(`,"wait_ttl":`, a.WaitTTL.Microseconds())
	if a.Full {
		b = append(b, `,"full":true`...)
	}
	b = append(append(b, `,"claim":`...), a.Claim...)
	return ascii(append(b, "}\n"...))
}

// parseArrivals reads at most so many of the first arrivals, and where each ends.
func (s *Store) parseArrivals(key, text string, most int) (all []swaplock.Arrival, at ends, err error) {
	for end := 0; end < len(text) && len(all) != most; {
		line, _, _ := strings.Cut(text[end:], "\n")
		end += len(line) + 1
		var a arrival
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			return nil, nil, driver.Permanent(fmt.Errorf("an arrival at %.80q cannot be read: %w", key, err))
		}
		all = append(all, swaplock.Arrival{
			ID: a.ID, Message: a.Message, Claim: a.Claim, Span: a.Span, Capacity: a.Capacity, Full: a.Full,
			TTL: time.Duration(a.TTL) * time.Microsecond, WaitTTL: time.Duration(a.WaitTTL) * time.Microsecond,
			Token: a.Token, At: fromMicros(a.At),
		})
		at = append(at, end)
	}
	return all, at, nil
}

// ends is a State.Seen: where those arrivals end that were read.
type ends []int

// version is that of a row.
type version struct {
	number  int64
	opening int64 // Statement.Opening: a copy of a file may have other rows of that number
}

func (v version) String() string {
	text := strconv.AppendInt(make([]byte, 0, 40), v.number, 10)
	if v.opening != 0 {
		text = strconv.AppendInt(append(text, '@'), v.opening, 10)
	}
	return string(text)
}

func readVersion(text string) (v version, err error) {
	number, opening, opened := strings.Cut(text, "@")
	if v.number, err = strconv.ParseInt(number, 10, 64); err == nil && opened {
		v.opening, err = strconv.ParseInt(opening, 10, 64)
	}
	return v, err
}

// Arrive takes a free lock, or puts a claim behind all others, by one statement.
func (s *Store) Arrive(ctx context.Context, key string, a *swaplock.Arrival) (*swaplock.Place, error) {
	text := tail(a)
	lease := ttl(swaplock.Lease{TTL: a.TTL})
	full, open := int64(0), int64(0)
	if a.Full {
		full, open = 1, lease
	}
	insert := []any{[]byte(key), a.Span, []byte(a.ID), lease, text, full, open, a.Capacity}
	if a.Free || a.Unseen {
		arg := batchArg{
			Span: a.Span, Lease: lease, Tail: text, Full: full, Capacity: a.Capacity, Unseen: a.Unseen,
		}
		p, sent, err := s.takeInBatch(ctx, key, a.ID, arg)
		if !sent && err == nil && (a.Free || s.d.kind == sqlite) { // a server would be asked twice where no row is
			p, err = s.take(ctx, key, len(text), insert)
		}
		if p != nil || err != nil {
			return p, err
		}
	}
	return s.arriveAny(ctx, key, a, insert)
}

// arriveAny takes a free lock, or puts a claim behind all others.
func (s *Store) arriveAny(ctx context.Context, key string, a *swaplock.Arrival, insert []any) (*swaplock.Place, error) {
	s.under.Add(1)
	defer s.under.Add(-1)
	quoted, wait, text := `"`+a.ID+`"`, a.WaitTTL.Microseconds(), insert[4]
	waits := int64(0)
	if a.Waits {
		waits = 1
	}
	if s.d.kind == mysql {
		return s.arriveMySQL(ctx, key, quoted, append(insert, waits, quoted, quoted, wait, text))
	}
	q := s.statement("enter the line of", key, arriveAnySQL,
		append(insert, text, wait, waits, quoted, quoted, []byte(a.ID))...)
	q.Keeps, q.Writes = false, true
	var p *swaplock.Place
	q.Begin = func() { p = nil }
	q.Row = func(scan func(to ...any) error) (err error) {
		var r placeRow
		if err = scan(r.columns(s)...); err == nil {
			p = r.place(q, a.Span)
		}
		return err
	}
	_, err := s.conns.Run(ctx, q)
	return p, err
}

// placeRow is the row that an arrival returns.
type placeRow struct {
	last, came, number, open int64
	mark, markedBy           []byte
	granted, length, ahead   int
}

func (r *placeRow) columns(s *Store) []any {
	return []any{
		&r.last, &r.came, &r.number, &r.open, s.bytes(&r.mark), s.bytes(&r.markedBy), &r.granted, &r.length, &r.ahead,
	}
}

func (r *placeRow) place(q *Statement, span int64) *swaplock.Place {
	p := &swaplock.Place{
		Token: r.last - span + 1, At: fromMicros(r.came), Granted: r.granted == 1, Open: fromMicros(r.open),
		Version: version{r.number, q.Opening}.String(), Lost: lostBefore(q.Opening),
		Mark: string(r.mark), MarkedBy: string(r.markedBy),
	}
	if p.Granted {
		p.Seen = ends{r.length}
	} else {
		p.Ahead = r.ahead/6 - 1 // six bytes of each claim are left out
	}
	return p
}

// take takes a lock that is free, has no mark, and was last wanted before now. All that it writes is known from the
// clock: on SQLite the statement returns no row, which costs as much as the rest of it.
func (s *Store) take(ctx context.Context, key string, tail int, args []any) (p *swaplock.Place, err error) {
	s.under.Add(1)
	defer s.under.Add(-1)
	text, now := takeSQL, int64(0)
	switch s.d.kind {
	case postgres:
		text, args = takePostgres, slices.Concat(args[1:], args[:1])
	case mysql:
		text, args = takeMySQL, slices.Concat(args[1:], args[:1])
	}
	st := s.statement("enter the line of", key, text, args...)
	st.Keeps, st.Writes = false, true
	switch s.d.kind {
	case postgres:
		st.Row = func(scan func(to ...any) error) error { return scan(&now) }
	case mysql:
		st.Inserted = &now
	}
	n, err := s.conns.Run(ctx, st)
	if n == 0 || err != nil {
		return nil, err
	}
	return s.taken(cmp.Or(now, st.Clock), tail, st.Opening), nil
}

// taken is the place of the only claim in line, which arrived at now.
func (s *Store) taken(now int64, tail int, opening int64) *swaplock.Place {
	length := len(`{"token":,"at":`) + 2*len(strconv.FormatInt(now, 10)) + tail
	return &swaplock.Place{
		Token: now, At: fromMicros(now), Granted: true, Lost: lostBefore(opening),
		Version: version{now, opening}.String(), Seen: ends{length},
	}
}

// Message adds a message to the arrivals, if there is a line.
func (s *Store) Message(ctx context.Context, key string, m []byte) (added bool, err error) {
	text := ascii(fmt.Appendf(nil, `,"message":true,"claim":%s}`+"\n", m))
	n, err := s.write(ctx, "leave a message in the line of", key, messageSQL, text, []byte(key))
	return n > 0, err
}

// Withdraw takes a claim that waits out of the arrivals.
func (s *Store) Withdraw(ctx context.Context, key string, a *swaplock.Arrival) (done bool, err error) {
	text := fmt.Sprintf(`{"token":%d,"at":%d%s`, a.Token, a.At.UnixMicro(), tail(a))
	n, err := s.write(ctx, "leave the line of", key, withdrawSQL, text, []byte(key), text)
	if n > 0 && err == nil && a.Lent {
		_, err = s.write(ctx, "end the lease of", key, dropOneSQL, []byte(key), []byte(a.ID))
	}
	return n > 0, err
}

// arriveMySQL does it on MariaDB and MySQL. Where a claim stands that waits is asked behind; if that cannot be told,
// each client that polls looks once.
func (s *Store) arriveMySQL(ctx context.Context, key, quoted string, args []any) (*swaplock.Place, error) {
	var got int64
	q := s.statement("enter the line of", key, arriveMySQL, args...)
	q.Keeps, q.Writes, q.Inserted = false, true, &got
	if _, err := s.conns.Run(ctx, q); err != nil || got == 0 {
		return nil, err
	}
	if got%4 == 1 {
		return s.taken(got/4, len(args[4].(string)), 0), nil
	}
	p := &swaplock.Place{Token: got / 4, At: fromMicros(got / 4)}
	p.Ahead, p.Open = 1, p.At.Add(time.Second)
	q = s.statement("read the line of", key, placeMySQL, quoted, []byte(key), quoted)
	q.Row = func(scan func(to ...any) error) error {
		var number, open int64
		err := scan(&number, &open, &p.Ahead)
		p.Version, p.Open = version{number: number}.String(), fromMicros(open)
		return err
	}
	_, _ = s.conns.Run(ctx, q) // the claim is in line, whatever this says
	return p, nil
}
