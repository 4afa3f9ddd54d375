/*
 * line.pml: the line rule, and the claims that come, stay and leave over a network
 * that loses, delays and repeats. README.md maps each part to the Go code.
 *
 * One line of one key, and CLAIMS claims at a time. A claim that is over gives its place
 * in the arrays to a new one, so runs are without end. The bounds and the planted faults
 * (FAULT_...) are macros.
 */
#ifndef CLAIMS
#define CLAIMS 2	/* claims that clients want, have, or leave behind at a time */
#endif
#ifndef T
#define T 2		/* ticks in a lease */
#endif
#ifndef HOLD
#define HOLD 1		/* with LIVE: renewals of a grant before its holder must release */
#endif
#ifndef KINDS
#define KINDS 3		/* 1: writers; 2: and readers; 3: and tries (NoWait) */
#endif
#ifndef BREAKS
#define BREAKS 1	/* 1: an operator ends claims by force */
#endif
#ifndef LINGER
#define LINGER 1	/* ticks of a MinHold, or 0 */
#endif

#define U	CLAIMS	/* users of a claim: one call of Lock each */
#define CAP	8	/* driver.RW */

/* With NAMED, users 0 and 1 are two processes that have one claim, with one ClaimID. */
#ifdef NAMED
#define ID(u)		((u) == 1 -> 0 : (u))
#define named(u)	((u) <= 1)
#else
#define ID(u)		(u)
#define named(u)	false
#define spent		true
#endif

/* -------- the store: internal/line -------- */

typedef Claim {
	unsigned tok : 5;	/* 0: not in line. The line is in order of tokens. */
	unsigned lease : 2;	/* ticks until it expires */
	unsigned tomb : 2;	/* ticks for which a tombstone keeps the ID out */
	unsigned weight : 4;
	bit granted;
	bit lingers;		/* its holder left, and the place stays taken */
	bit broken;		/* history: an operator ended it */
	bit over		/* history: a Leave was applied */
};
Claim c[U];

byte last = 0;			/* the largest token drawn */
byte highest = 0;		/* history: the largest token granted */
byte writer = 0;		/* history: the largest token granted to a writer */

#define inLine(i)	(c[i].tok != 0)
#define live(i)		(inLine(i) && !c[i].lingers)

/* -------- the clients: claim.go, attempt.go, renew.go, leave.go -------- */

#define IDLE	0
#define NEW	1	/* stateNew: the store has not answered an Enter */
#define WAIT	2	/* stateWaiting */
#define HELD	3	/* stateHeld */
#define LEAVING	4	/* stateLeaving: a Leave is repeated until the store confirms it */
#define OVER	5	/* stateEnded, or the process has crashed: it sends nothing more */

#define NONE	0	/* the call under way */
#define ENTER	1
#define RENEW	2

#define SENT	0	/* what has become of that call */
#define LOST	1
#define WAITS	2	/* these are answers on their way back */
#define GRANTED	3
#define OK	4
#define GONE	5
#define BUSY	6

/* A Leave needs no call: nobody but its sender sees when its answer comes. */
typedef User {
	unsigned st : 3;
	unsigned call : 2;
	unsigned ans : 3;
	unsigned belief : 2;	/* ticks until the deadline: the user believes while it is above 0 */
	unsigned fresh : 2;	/* the lease of the call under way, counted from its sending */
	unsigned renews : 2;
	bit lateEnter;		/* an Enter that nobody waits for, and that may still arrive */
	bit uncertain;		/* an Enter may still arrive: the Leave leaves a tombstone */
	bit try;
	bit linger
};
User u[U];

#ifdef NAMED
bit baton;			/* whose answer the caller uses: user 0, then user 1 */
bit spent;			/* the caller has released, or its Wait was over: it does not repeat the call */
#define uses(x)		(!named(x) || (x) == baton)
#else
#define uses(x)		true
#endif

bit calm;			/* from now on no request is lost or slow, and nobody crashes */

/* A user is inside while it believes in its grant. A claim that an operator has broken is
 * told so late: what excludes it is its token. */
#define inside(x)	(u[x].st == HELD && u[x].belief > 0 && uses(x) && !c[ID(x)].broken)

/* Scratch of one step, and zero between steps. */
byte a, b, sum, min, total, ok;
inline done() { a = 0; b = 0; sum = 0; min = 0; total = 0; ok = 0 }

/* exclusion: nobody else is inside beside a writer. */
inline checkInside(x) {
	b = 0;
	do
	:: b < U ->
		if
		:: b != x && ID(b) != ID(x) && inside(b) && inside(x) ->
			assert(c[ID(x)].weight + c[ID(b)].weight <= CAP)	/* one writer inside */
		:: else
		fi;
		b++
	:: else -> break
	od;
	b = 0
}

/* Only the order of tokens matters: numbers that nobody has are left out. */
inline renumber() {
	sum = 1;
	do
	:: sum < last ->
		ok = (highest == sum || writer == sum); a = 0;
		do
		:: a < U -> ok = ok || c[a].tok == sum; a++
		:: else -> break
		od;
		if
		:: ok -> sum++
		:: else ->
			a = 0;
			do
			:: a < U ->
				if
				:: c[a].tok > sum -> c[a].tok--
				:: else
				fi;
				a++
			:: else -> break
			od;
			if
			:: highest > sum -> highest--
			:: else
			fi;
			if
			:: writer > sum -> writer--
			:: else
			fi;
			last--
		fi
	:: else -> break
	od;
	a = 0
}

/* granted(c) iff weight(c) + the weights before c fit the capacity; queue.grant. */
inline settle() {
	a = 0;
	do
	:: a < U ->
		if
		:: inLine(a) && !c[a].granted ->
			sum = c[a].weight; b = 0;
			do
			:: b < U ->
				if
#ifdef FAULT_OVERTAKE
				:: inLine(b) && c[b].tok < c[a].tok && c[b].granted -> sum = sum + c[b].weight
#else
				:: inLine(b) && c[b].tok < c[a].tok -> sum = sum + c[b].weight
#endif
				:: else
				fi;
				b++
			:: else -> break
			od;
			if
			:: sum <= CAP ->
				c[a].granted = 1;
				if
				:: c[a].weight == CAP ->
					assert(c[a].tok > highest);	/* tokens rise */
					writer = c[a].tok
				:: else ->
					assert(c[a].tok > writer)	/* tokens rise */
				fi;
				if
				:: c[a].tok > highest -> highest = c[a].tok
				:: else
				fi
			:: else
			fi
		:: else
		fi;
		a++
	:: else -> break
	od;
	renumber()
}

inline forget(i) {
	c[i].tok = 0; c[i].lease = 0; c[i].granted = 0; c[i].lingers = 0
}

/* No claim ends in the store while its holder believes in it; except is the user that
 * has asked for the end. */
inline checkEnd(i, except) {
	b = 0;
	do
	:: b < U ->
		assert(!(ID(b) == i && b != except && inside(b)));	/* no grant ends under its holder */
		b++
	:: else -> break
	od;
	b = 0
}

/* Enter, Store.Enter: answer is a field or scratch. */
inline storeEnter(x, answer) {
	if
	:: live(ID(x)) ->
		c[ID(x)].lease = T;
		if
		:: c[ID(x)].granted -> answer = GRANTED
		:: else -> answer = WAITS
		fi
#ifndef FAULT_NO_TOMBSTONE
	:: !live(ID(x)) && c[ID(x)].tomb > 0 -> answer = GONE
#endif
	:: !live(ID(x)) && c[ID(x)].lingers && c[ID(x)].tomb == 0 -> answer = GONE
	:: else ->
		total = 0; a = 0;
		do
		:: a < U ->
			if
			:: inLine(a) -> total = total + c[a].weight
			:: else
			fi;
			a++
		:: else -> break
		od;
		if
		:: u[x].try && total + CAP > CAP -> answer = BUSY
		:: else ->
			assert(!c[ID(x)].over);		/* no ghost: what has left does not come back */
#ifdef FAULT_TOKEN_REUSE
			if
			:: total == 0 -> last = 0
			:: else
			fi;
#endif
			forget(ID(x));
			last++;
			c[ID(x)].tok = last;
			c[ID(x)].lease = T;
			c[ID(x)].broken = 0;
			settle();
			if
			:: c[ID(x)].granted -> answer = GRANTED
			:: else -> answer = WAITS
			fi
		fi
	fi
}

inline storeRenew(x, answer) {
	if
	:: live(ID(x)) -> c[ID(x)].lease = T; answer = OK
#ifdef FAULT_RENEW_REVIVES
	:: !live(ID(x)) && c[ID(x)].tomb == 0 -> storeEnter(x, answer); answer = OK
#endif
	:: else -> answer = GONE
	fi
}

inline storeLeave(x, stone) {
	if
	:: stone -> c[ID(x)].tomb = T
	:: else
	fi;
	c[ID(x)].over = !named(x) || spent;
	if
	:: live(ID(x)) ->
		checkEnd(ID(x), x);
		if
		:: u[x].linger -> c[ID(x)].lingers = 1; c[ID(x)].lease = LINGER
		:: else ->
			forget(ID(x));
#ifndef FAULT_WAKES_NOBODY
			settle()
#endif
		fi
	:: else
	fi
}

/* -------- one step of a client -------- */

/* A call of x is given up. Its request is lost, or arrives later if it is an Enter. (A
 * Renew that arrives later than this is one that was given up later.) */
inline abandonCall(x) {
	if
	:: u[x].call == ENTER ->
#ifndef FAULT_UNANSWERED_IS_NONE
		u[x].uncertain = 1;
#endif
		if
		:: u[x].ans == SENT -> u[x].lateEnter = 1
		:: true
		fi
	:: else
	fi;
	u[x].call = NONE; u[x].ans = SENT; u[x].fresh = 0
}

/* What no later step can read is set to zero, so that equal futures are equal states. */
inline tidy(x) {
	if
	:: u[x].st == OVER && !u[x].lateEnter && u[x].call == NONE && !inLine(ID(x)) && !named(x) ->
		u[x].st = IDLE;		/* the next claim, which has another ID */
		c[ID(x)].weight = 0; c[ID(x)].over = 0; c[ID(x)].broken = 0; c[ID(x)].tomb = 0
	:: else
	fi
}

/* The claim of x ends without a Leave of its own. */
inline end(x) {
	u[x].st = OVER; u[x].belief = 0;
	u[x].renews = 0; u[x].uncertain = 0; u[x].linger = 0; u[x].try = 0;
	tidy(x)
}

inline leave(x) {
	u[x].st = LEAVING; u[x].belief = 0; u[x].renews = 0
}

/* loseLocked for a claim whose deadline has passed. A claim that waited and one that was
 * held both get a Leave; a named one gets none, because another process may have it. */
inline lapse(x) {
#ifdef FAULT_LATE_LEAVE
	leave(x)
#else
	if
	:: named(x) -> end(x)
	:: else -> leave(x)
	fi
#endif
}

/* goneLocked: the store no longer has the claim. */
inline gone(x) {
	if
	:: u[x].uncertain && u[x].st != HELD && !named(x) -> leave(x)
	:: else -> end(x)
	fi
}

/* confirmLeaseLocked: ok says whether the answer came in time. */
inline confirm(x) {
#ifdef FAULT_COUNTED_FROM_ANSWER
	u[x].fresh = T;
#endif
	ok = u[x].fresh > 0;
	if
	:: u[x].fresh > u[x].belief -> u[x].belief = u[x].fresh
	:: else
	fi
}

inline take(x) {
	u[x].st = HELD;
	checkInside(x)
}

inline receive(x) {
	if
	:: u[x].st >= LEAVING	/* nobody waits for it any more */
	:: u[x].st < LEAVING && u[x].call == ENTER && u[x].ans == GONE -> gone(x)
	:: u[x].st < LEAVING && u[x].call == ENTER && u[x].ans == BUSY ->
		if
		:: u[x].uncertain -> leave(x)
		:: else -> end(x)
		fi
	:: u[x].st < LEAVING && u[x].call == ENTER && (u[x].ans == WAITS || u[x].ans == GRANTED) ->
		confirm(x);
		if
		:: !ok -> u[x].uncertain = 1	/* errLate: it asks again */
		:: ok && u[x].ans == GRANTED -> take(x)
		:: ok && u[x].ans == WAITS && u[x].try -> leave(x)
		:: else -> u[x].st = WAIT
		fi
	:: u[x].st < LEAVING && u[x].call == RENEW && u[x].ans == GONE -> gone(x)
	:: u[x].st < LEAVING && u[x].call == RENEW && u[x].ans == OK -> confirm(x)
	fi;
	u[x].call = NONE; u[x].ans = SENT; u[x].fresh = 0;
	tidy(x)
}

/* Users are alike, so a call that begins takes the first that is free. */
#define free(x)		(u[x].st == IDLE)
#ifdef NAMED
#define mayBegin(x)	((x) == 0 || ((x) == 1 && !free(0) && !spent) || ((x) >= 2 && ((x) == 2 || !free(2))))
#else
#define mayBegin(x)	((x) == 0 || (!free(0) && ((x) == 1 || (!free(1) && ((x) == 2 || !free(2))))))
#endif

inline begin(x) {
	u[x].st = NEW;
	if
	:: c[ID(x)].weight != 0		/* a repeated call is the same call */
	:: c[ID(x)].weight == 0 -> c[ID(x)].weight = CAP
#if KINDS > 1
	:: c[ID(x)].weight == 0 && !named(x) -> c[ID(x)].weight = 1
#endif
#if KINDS > 2
	:: c[ID(x)].weight == 0 && !named(x) && !calm -> c[ID(x)].weight = CAP; u[x].try = 1
#endif
	fi;
#ifdef NAMED
	if
	:: x == 1 -> baton = 1
	:: else
	fi
#endif
}

/* user is one call of Lock with its Release, and the network that carries its requests. */
proctype user(byte x) {
	do
	/* the caller */
	:: atomic { u[x].st == IDLE && mayBegin(x) -> begin(x); done() }
	:: d_step { u[x].st == NEW && u[x].call == NONE -> u[x].call = ENTER; u[x].fresh = T; done() }
	:: d_step { (u[x].st == WAIT || u[x].st == HELD && u[x].renews < HOLD) && u[x].call == NONE && u[x].belief < T ->
		u[x].call = RENEW; u[x].fresh = T;
#ifdef LIVE
		if
		:: u[x].st == HELD -> u[x].renews++
		:: else
		fi
#endif
		done() }
	:: atomic { u[x].st == HELD && uses(x) ->	/* Release, with or without MinHold */
		abandonCall(x); leave(x);
#ifdef NAMED
		if
#ifndef FAULT_NAMED_RELEASE
		:: named(x) -> spent = 1; u[x].uncertain = 1
#else
		:: named(x) -> spent = 1
#endif
		:: else
		fi;
#endif
		if
		:: u[x].linger = 0
#if LINGER > 0
		:: u[x].linger = 1
#endif
		fi;
		done() }
	:: atomic { (u[x].st == NEW || u[x].st == WAIT) && !calm ->	/* its context ends */
		abandonCall(x);
		if
		:: u[x].st == NEW && !u[x].uncertain -> end(x)
		:: else -> lapse(x)
		fi;
		done() }
#ifdef NAMED
	:: atomic { (u[x].st == NEW || u[x].st == WAIT) && !calm && named(x) && uses(x) ->	/* its Wait is over */
		abandonCall(x); leave(x); u[x].uncertain = 1; spent = 1; done() }
#endif
	:: atomic { u[x].st == LEAVING ->	/* a Leave arrives, and its answer may be lost */
		storeLeave(x, u[x].uncertain);
		if
		:: end(x)
		:: !calm	/* its answer is lost */
		fi;
		done() }
	:: atomic { u[x].st >= NEW && u[x].st != OVER && !calm -> abandonCall(x); end(x); done() }	/* it is killed */

	/* the network and the store */
	:: d_step { u[x].call == ENTER && u[x].ans == SENT -> storeEnter(x, u[x].ans); done() }
	:: d_step { u[x].call == RENEW && u[x].ans == SENT -> storeRenew(x, u[x].ans); done() }
	:: d_step { u[x].call != NONE && u[x].ans > LOST -> receive(x); done() }
	:: atomic { u[x].call != NONE && (!calm || u[x].ans == LOST) -> abandonCall(x); done() }
	:: d_step { u[x].lateEnter -> u[x].lateEnter = 0; storeEnter(x, total); tidy(x); done() }
	:: d_step { u[x].lateEnter -> u[x].lateEnter = 0; tidy(x); done() }	/* it is lost */
	:: d_step { u[x].st == WAIT && live(ID(x)) && c[ID(x)].granted -> take(x); done() }	/* Await */
	od
}

/* -------- time -------- */

/* In the calm, a tick is longer than a round trip: requests are answered and leases are
 * renewed before the next one. */
#define settled(x)	((x) >= U || (u[x].call == NONE && u[x].st != NEW && u[x].st != LEAVING && \
	(u[x].st != WAIT || (u[x].belief == T && !c[ID(x)].granted))))
#define first(x)	((x) < U -> (x) : 0)
#define mayTick		(!calm || (settled(0) && settled(first(1)) && settled(first(2)) && \
	settled(first(3)) && settled(first(4)) && settled(first(5))))

inline tick() {
	a = 0;
	do
	:: a < U ->
		if
		:: u[a].fresh > 0 -> u[a].fresh--
		:: else
		fi;
		if
		:: u[a].belief > 0 ->
			u[a].belief--;
			if
			:: u[a].belief == 0 -> lapse(a)
			:: else
			fi
		:: else
		fi;
		a++
	:: else -> break
	od;
	a = 0;
	do
	:: a < U ->
		if
		:: c[a].tomb == 1 ->
			/* No Enter is under way for longer than a TTL after the Leave of its claim.
			 * After that a named ID is as good as new. */
			c[a].tomb = 0; if :: named(a) -> c[a].over = 0 :: else fi;
			min = 0;
			do
			:: min < U ->
				if
				:: ID(min) == a ->
					u[min].lateEnter = 0;
					if
					:: u[min].call == ENTER && u[min].ans == SENT -> u[min].ans = LOST
					:: else
					fi;
					tidy(min)
				:: else
				fi;
				min++
			:: else -> break
			od
		:: c[a].tomb > 1 -> c[a].tomb--
		:: else
		fi;
		if
		:: c[a].lease > 1 -> c[a].lease--
		:: c[a].lease == 1 -> checkEnd(a, U); forget(a); ok = 1; if :: !named(a) -> tidy(a) :: else fi
		:: else
		fi;
		a++
	:: else -> break
	od;
	if
#ifndef FAULT_WAKES_NOBODY
	:: ok -> settle()
#endif
	:: else
	fi
}

proctype clock() {
	do
	:: d_step { mayTick -> tick(); done() }
	od
}

/* Store.Break, at any time, of any claim. */
proctype operator() {
	do
	:: atomic { !calm ->
		a = 0;
		do
		:: a < U - 1 -> a++
		:: break
		od;
		if
		:: inLine(a) ->
			c[a].broken = 1;
			if
			:: c[a].lease > c[a].tomb -> c[a].tomb = c[a].lease
			:: else
			fi;
			forget(a);
			settle()
		:: else
		fi;
		done() }
	od
}

#ifdef LIVE
proctype weather() { calm = 1 }

/* Whoever stands in line when the faults end is granted. */
ltl served { [] ((calm && u[LIVE].st == WAIT && live(ID(LIVE))) -> <> (u[LIVE].st == HELD)) }

/* Whatever happens, what nobody wants any more leaves the line. */
ltl ghosts { [] ((u[LIVE].st == OVER) -> <> (!inLine(ID(LIVE)))) }
#endif

init {
	atomic {
		a = 0;
		do
		:: a < U -> run user(a); a++
		:: else -> break
		od;
		run clock();
#if BREAKS > 0
		run operator();
#endif
#ifdef LIVE
		run weather();
#endif
		done()
	}
}
