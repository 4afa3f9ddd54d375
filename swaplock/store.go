package swaplock

import (
	"context"
	"iter"
	"time"
)

// Store is a store that can compare and swap. All methods may be called from many goroutines at
// once, and return soon after ctx ends. Each is one atomic step of the store, and is not repeated
// unless the first try is known to have had no effect.
//
// An error matches driver.ErrRefused if nothing happened and a later try may succeed, and
// driver.ErrPermanent if nothing happened and only a person can help: see driver.Refused and
// driver.Permanent. After any other error the outcome is unknown, and the Backend finds it out.
// A condition that does not hold is not an error.
//
// All times are those of the store's own clock. A store that cannot keep a time to the nanosecond
// rounds it up: a lease may end a moment late, and never early.
type Store interface {
	// Traits say what the store is. They never change.
	Traits() Traits

	// Read returns what the store has of key, with at most so many of its first arrivals, or all
	// of them if arrivals is negative. A key that is not there is an empty State with Now. Keys are
	// any bytes, 1 to 1024 of them. The State must have all Swaps that had returned before the Read
	// was sent: a replica that lags does not do.
	Read(ctx context.Context, key string, arrivals int) (State, error)

	// Swap applies c to key if all its conditions hold, and returns the new version of the key.
	// Else it changes nothing and returns "".
	Swap(ctx context.Context, key string, c *Change) (version string, err error)

	// Renew has each lease end no earlier than its TTL from now: that of the holder, if the ID
	// is the holder's, else that of the record. A lease that has ended, or is not there, stays as
	// it is, and Renew returns false for it. The version of the key stays the same. One call may
	// have hundreds of leases, of many keys. If there is an error, alive is ignored, and no lease
	// counts as renewed.
	Renew(ctx context.Context, ls []Lease) (alive []bool, err error)

	// Purge removes those records of ids that have ended by now, for good: a Renew that comes later
	// finds none. It is called once a Read has shown that they have ended.
	Purge(ctx context.Context, key string, ids []string) error

	// Forget removes the keys that have neither document nor arrivals nor mark, and whose Last is
	// below last; and all records that have ended. It returns keys, some hundreds at most, that have a
	// document or arrivals and whose Last is below last; they are looked at then. It is called
	// about once an hour by each process, and has five minutes. A store may keep keys forever,
	// and returns nil.
	Forget(ctx context.Context, last int64) (stale []string, err error)

	// List yields the keys that begin with prefix and have a document or arrivals, with what Read
	// returns of each. It stops after the first error that it yields. The States need not be of
	// one moment.
	List(ctx context.Context, prefix string) iter.Seq2[Keyed, error]

	// Watch calls hear with the key and the News of each swap, by any process, until ctx ends or
	// the connection fails; hear may be called from many goroutines at once. Once it hears of all
	// swaps from then on, it calls hear with an empty key. Watch is called again a quarter of a
	// second after it returns, whatever it returns. News that is lost delays a grant by up to a second.
	//
	// A store without push reads, every few milliseconds, the versions of the keys that waiting
	// returns, in as few requests as it can, and calls hear without News for each key whose
	// version differs from the one that waiting has returned with it.
	Watch(ctx context.Context, waiting func() map[string]string, hear func(key string, news []News)) error
}

// Losable is optional: a store that may be lost under its clients, such as a file that is deleted or
// replaced. The claims that entered before are gone then, whatever the new one has.
type Losable interface {
	// Lost returns how often this process has found the store lost, and the reason that the owners
	// of claims that entered before are told. It sends no request.
	Lost() (times int64, reason string)
}

// Traits describe a store.
type Traits struct {
	Name      string // as in driver.Info
	Namespace string // as in driver.Info

	// Optional:

	MinTTL time.Duration // as in driver.Info
	// Node is News.Node of claims that enter through this process: letters and digits.
	Node string
	// Grace is by how much the store's clock may be ahead of State.Now at the moment of the Read: one second where
	// the store counts whole seconds. Leases last longer by Grace, and none ends early.
	Grace time.Duration
}

// State holds all that a store has of one key, as of one moment.
type State struct {
	Version string    // changes with each swap, and is never one that the key has had before; "" if there is nothing
	Now     time.Time // by the store's clock, after the Read was sent
	Lost    int64     // of a Losable: how often it had been lost then
	Content
	Records map[string]time.Time // when the leases in records end, by ID
	Soon    time.Duration        // look at the line again after so long, unless 0: a record may end before its time
	// Seen is anything that the store has to know of this State when it is swapped, or nil. The Change has it.
	Seen any

	// Of an Arriver or a Messenger:

	Arrivals []Arrival // the first ones, in the order of their tokens
	More     bool      // there are others behind them

	sent     int64         // when the last Read was sent, by claims.clock
	read     time.Time     // what it returned as Now
	took     time.Duration // how long that Read took
	wall     time.Time     // what people are told, if that is later than Now
	alone    bool          // there is one claim
	recalled bool          // others may have written the line since
	unread   int           // how many claims have entered since it was read
}

// empty reports whether nobody is in line.
func (st *State) empty() bool { return len(st.Document)+len(st.Holder)+len(st.Arrivals) == 0 }

// Content is the part of a State that a swap replaces. The store keeps all of it as it is, and need
// not read the Document.
type Content struct {
	Last     int64     // the largest token drawn
	Mark     string    // any bytes
	MarkedBy string    // any bytes
	Holder   string    // the ID of the claim whose lease ends at Expires, or ""
	Expires  time.Time // of Holder
	Open     time.Time // until then claims may arrive and wait: see Arriver; zero if none may
	Capacity int64     // of the claims that may arrive
	Document []byte    // empty, or a JSON object
}

// Change describes a swap: its conditions first. All conditions and all effects are one atomic step.
type Change struct {
	If     string    // the version of the key is still this; "" if there is nothing
	Seen   any       // as in the State
	IfLast int64     // Last is still this, unless 0: nobody has arrived since the Read
	Ended  time.Time // the lease of the holder ends at this very time still, unless zero
	Before time.Time // the store's clock is before this, unless zero

	// Content replaces what is there, but Last never falls. If the Holder stays, its lease ends
	// at the later of both times.
	Content
	Lend     []Lease  // makes these records, or has them end no earlier than their TTL from now
	Drop     []string // removes the records of these IDs
	Arrivals int      // removes so many of the first arrivals: the document has them from now on
	News     []News   // for those who Watch in other processes

	// Next is set by a Swap that has won to the State.Seen of the new version, unless Seen is nil.
	Next any
}

// News describes the effect of a swap on one claim, for a Watch to deliver as it is. It is not a
// secret.
type News struct {
	Token int64 // of the claim
	// Grant proves to the owner of the claim that it holds the lock now. If it is empty, the owner
	// must look.
	Grant string
	Node  string // Traits.Node where the claim has entered
	// State is what the store has of the key then or later, if that was read with the news and has no Records.
	State *State `json:"-"`
}

// Lease names one lease, by its key and the ID of its claim, and says how long it lasts from now.
type Lease struct {
	Key, ID string
	TTL     time.Duration
}

// Keyed is one key of a List.
type Keyed struct {
	Key string
	State
}

// Arriver is optional: a store in which a claim can join a line by one request that collides
// with nothing. A client far from the store needs that: where others swap all the time, each of
// its own swaps comes too late.
//
// The line of a key is its document and, behind that, its arrivals. Whoever swaps next may move
// the first arrivals into the document (Change.Arrivals).
type Arriver interface {
	Messenger

	// Arrive adds a to the arrivals of key if it may, and returns its place, else nil. It costs one
	// request. A free lock is taken by it alone.
	//
	//   - If there is no document and no arrival, a holds the lock. It becomes the Holder, with a
	//     lease of a.TTL, and the version changes. Open becomes the end of that lease if a.Full,
	//     else zero, and Capacity becomes a.Capacity.
	//   - Else a joins behind all others if a.Waits, Capacity is a.Capacity, and the store's clock
	//     is before Open. The version stays the same, and Open becomes no later than a.WaitTTL from
	//     now. It may not join if its ID occurs in the document as a JSON string, or among the
	//     arrivals.
	//
	// The store sets Token and At, and Last becomes Token + Span - 1.
	Arrive(ctx context.Context, key string, a *Arrival) (*Place, error)

	// Withdraw takes a, with the Token and At that it has got, out of the arrivals, if it is there and the store's
	// clock is before Open: then a waits, and nobody waits for a alone. The version changes, and Open does not: a
	// Change sets it for those that cannot be withdrawn. If a.Lent, its record goes, too. A long line is neither read
	// nor written for a claim that gives up at its end.
	Withdraw(ctx context.Context, key string, a *Arrival) (done bool, err error)
}

// Messenger is optional: a store in which many clients can add something to a key without a condition. A client whose
// swaps come too late then leaves a message, which the next client to swap does for it. Without that, a client far from
// the store starves while others swap all the time.
type Messenger interface {
	// Message adds m, a JSON object, to the end of the arrivals of key, as a Claim with Message and At. It may refuse
	// to if there is neither document nor arrival. The version stays the same. A store that is no Arriver has
	// no other arrivals; it returns all of them from then on, however many it was asked for, and none again that a
	// swap has removed (Change.Arrivals).
	Message(ctx context.Context, key string, m []byte) (added bool, err error)
}

// Arrival is a claim that has arrived and is not in the document yet, or a message.
type Arrival struct {
	ID       string // letters and digits; empty for a message
	Message  bool
	Claim    []byte // a JSON object, which the store keeps as it is
	Span     int64  // how many tokens it draws, 1 or more
	Capacity int64
	TTL      time.Duration // of its lease, if it holds the lock at once
	WaitTTL  time.Duration // of its lease, if it waits
	Waits    bool          // it may wait
	Full     bool          // if it holds the lock, no other can
	Free     bool          // this process has left the line empty, and not been there since: the lock may be free
	Unseen   bool          // this process knows nothing of the line: the lock may be free, or new to the store

	Token int64     // the larger of Last + 1 and At in µs since 1970
	At    time.Time // when it arrived
	Lent  bool      // it may have a record, which is its lease then

	written *claim // what Claim says, if that is known
}

// Place says where an arrival stands.
type Place struct {
	Token    int64     // as in Arrival
	At       time.Time // as in Arrival
	Granted  bool
	Ahead    int       // claims before it; a store may estimate that
	Version  string    // of the key
	Seen     any       // as in a State, if the arrival is granted
	Lost     int64     // of a Losable: how often it had been lost then
	Open     time.Time // of the key, if the arrival waits
	Mark     string    // of the key, if the arrival is granted
	MarkedBy string    // of the key, if the arrival is granted
}
