/*
 * gate.pml: the goroutines of one Client that want one key share one claim and hand it on,
 * while another process wants the key too. README.md maps each part to the Go code.
 *
 * Each goroutine calls Lock CALLS times. No step repeats without a bound, so every run comes
 * to an end, and a run that ends with somebody still waiting is an invalid end state.
 *
 * Leases end at any time, but first in their process and then in the store: line.pml shows
 * that no store ends a lease under a holder who believes in it.
 */
#ifndef G
#define G 2		/* goroutines */
#endif
#ifndef CALLS
#define CALLS 2		/* calls of Lock by each */
#endif
#ifndef HANDOFF
#define HANDOFF 1	/* Options.HandOff: the tokens of a new claim, and of a Reserve */
#endif
#ifndef LOSSES
#define LOSSES 1	/* leases that end before their release */
#endif
/* Claims of this Client that are not over: one for each goroutine, one in the queue, and one
 * that leaves. A step that may make another waits until one is over. */
#define M (G+2)

#define NOBODY	G
#define NOCLAIM	M

/* -------- the claims: claim.go, and what the store has of them -------- */

#define NEW	1
#define WAIT	2
#define HELD	3
#define ENDED	4
#define LEAVING	5

typedef Claim {
	unsigned st : 3;	/* 0: not in use */
	unsigned tok : 5;	/* in the store's line, by this token; 0: not in line */
	unsigned drawn : 5;	/* the token as this process knows it */
	unsigned span : 4;	/* tokens that this process knows to be reserved */
	unsigned reserved : 4;	/* tokens that the store has reserved */
	unsigned used : 4;
	unsigned holder : 2;	/* NOBODY: cl.grant == nil */
	unsigned reserve : 2;	/* a Reserve: 1 sent, 2 done, 3 not done or not answered */
	bit contended;
	bit behind;		/* behindOthers */
	bit broken;		/* an operator ended it */
	bit wakes		/* loseLocked has run, and claimLost has not */
};
Claim c[M];

byte last = 0;			/* the largest token drawn from the store */
byte top = 0;			/* history: the largest token given to a holder */
byte losses = 0;

/* the other process */
byte rival = 0;			/* its token, or 0 */
bit rivalIn = 0;
byte grants = 0;		/* history: grants here while the other process waits */

/* -------- the local queue: queue.go -------- */

byte claim = NOCLAIM;		/* localQueue.claim */
bit hasFront = 0;
bit parked = 0;
byte waiting[G] = NOBODY;
byte n = 0;

#define FRONT	1
#define LEASE	2
byte wakeup[G] = 0;		/* the channel of a call that waits: room for one */
byte own[G] = NOCLAIM;		/* acquisition.claim, or the claim of the lease */
bit over[G] = 0;		/* Lease.over: lost */
byte ctx[G] = 0;		/* 1: the context has ended */

/* scratch of one step */
byte i, j, k, h, l, m;

#define granted(x)	(c[x].tok != 0 && first(x))
#define before(x, y)	((y) < M && c[(y) % M].tok != 0 && c[(y) % M].tok < c[x].tok)
#define first(x)	(!(rival != 0 && rival < c[x].tok) && !before(x, 0) && !before(x, 1) && \
	!before(x, 2) && !before(x, 3) && !before(x, 4) && !before(x, 5))
#define ahead(y)	((y) < M && c[(y) % M].tok != 0 && c[(y) % M].tok < rival)
#define rivalFirst	!(ahead(0) || ahead(1) || ahead(2) || ahead(3) || ahead(4) || ahead(5))
#define alone(x)	(rival == 0 && last == c[x].tok + c[x].reserved - 1)

/* Only the distances of tokens matter: the numbers below all that are in use are left out. */
inline lower() {
	d_step {
		l = last + 1; m = 0;
		do
		:: m < M ->
			if
			:: c[m].tok != 0 && c[m].tok < l -> l = c[m].tok
			:: else
			fi;
			if
			:: c[m].drawn != 0 && c[m].drawn < l -> l = c[m].drawn
			:: else
			fi;
			m++
		:: else -> break
		od;
		if
		:: rival != 0 && rival < l -> l = rival
		:: else
		fi;
		l--; m = 0;
		do
		:: m < M ->
			if
			:: c[m].tok != 0 -> c[m].tok = c[m].tok - l
			:: else
			fi;
			if
			:: c[m].drawn != 0 -> c[m].drawn = c[m].drawn - l
			:: else
			fi;
			m++
		:: else -> break
		od;
		if
		:: rival != 0 -> rival = rival - l
		:: else
		fi;
		if
		:: top > l -> top = top - l
		:: else -> top = 0
		fi;
		last = last - l; l = 0; m = 0
	}
}

#define room		(c[0].st == 0 || c[1].st == 0 || c[2].st == 0 || c[3 % M].st == 0 || c[4 % M].st == 0)

/* newClaim: the first that is free. */
inline newClaim(to) {
	to = 0;
	do
	:: to < M && c[to].st != 0 -> to++
	:: else -> break
	od;
	assert(to < M);		/* M is large enough */
	c[to].st = NEW; c[to].holder = NOBODY
}

inline drop(x) {
	c[x].st = 0; c[x].drawn = 0; c[x].span = 0; c[x].reserved = 0; c[x].used = 0; c[x].holder = NOBODY;
	c[x].contended = 0; c[x].behind = 0; c[x].broken = 0; lower()
}

/* A claim that has ended and that nobody speaks of is forgotten. */
inline tidy(x) {
	if
	:: x < M && c[x].st == ENDED && c[x].tok == 0 && c[x].reserve == 0 && !c[x].wakes && c[x].holder == NOBODY && claim != x ->
		j = 0;
		do
		:: j < G && own[j] != x -> j++
		:: else -> break
		od;
		if
		:: j == G -> drop(x)
		:: else
		fi;
		j = 0
	:: else
	fi
}

/* grantLocked: the next token of the span. */
inline grant(x, g) {
	c[x].holder = g; own[g] = x; over[g] = 0;
	j = 0;
	do
	:: j < M ->
		assert(j == x || c[j].st == 0 || c[j].holder == NOBODY || c[j].broken);	/* one holder in the process */
		j++
	:: else -> break
	od;
	j = 0;
	assert(!rivalIn || c[x].broken);			/* and none beside the other process */
#ifdef FAULT_SAME_TOKEN
	j = c[x].drawn;
#else
	j = c[x].drawn + c[x].used;
#endif
	assert(c[x].used < c[x].reserved || c[x].tok == 0);	/* a token that the store has reserved */
	assert(j > top || c[x].broken);				/* tokens rise */
	if
	:: j > top -> top = j
	:: else
	fi;
	j = 0;
	c[x].used++;
	if
	:: rival != 0 && !rivalIn -> grants++; assert(grants <= 2*HANDOFF)
	:: else
	fi
}

inline popWaiting(to) {
	to = waiting[0]; k = 0;
	do
	:: k < G - 1 -> waiting[k] = waiting[k+1]; k++
	:: else -> break
	od;
	waiting[G-1] = NOBODY; n--; k = 0
}

inline becomeFront(g) {
	if
	:: claim == NOCLAIM -> newClaim(claim)
	:: else
	fi;
	hasFront = 1; own[g] = claim
}

inline wakeNext() {
	hasFront = 0;
	if
	:: n > 0 ->
		popWaiting(i);
		becomeFront(i);
		wakeup[i] = FRONT; i = 0
	:: else
	fi
}

/* -------- hand-off: handoff.go -------- */

#define turnOver(x)	(c[x].used >= c[x].span)
#ifdef FAULT_HANDOFF_AFTER_LOSS
#define healthy(x)	true
#else
#define healthy(x)	(c[x].st == HELD)
#endif
#ifdef FAULT_BEYOND_SPAN
#define mayReserve(x)	false
#define passes(x)	true
#else
#define mayReserve(x)	(c[x].reserve == 0 && !c[x].behind && !c[x].contended && c[x].span - c[x].used <= HANDOFF)
#define passes(x)	(!turnOver(x) || c[x].reserve != 0 || mayReserve(x))
#endif
#define keeps(x)	(n > 0 && healthy(x) && passes(x))

/* passLocked. ok says whether the claim is asked for more tokens early. */
inline pass(x) {
	if
#ifndef FAULT_BEYOND_SPAN
	:: turnOver(x) ->
		hasFront = 1; parked = 1;
		if
		:: c[x].reserve == 0 -> c[x].reserve = 1
		:: else
		fi
	:: !turnOver(x) ->
#else
	:: true ->
#endif
		popWaiting(i);
		grant(x, i);
		wakeup[i] = LEASE; i = 0;
		if
		:: mayReserve(x) -> c[x].reserve = 1
		:: true
		fi
	fi
}

/* -------- loss: loss.go -------- */

/* loseLocked, under the claim's mutex. claimLost follows under the queue's. What an
 * operator has ended needs no Leave. */
inline lose(x) {
	if
	:: c[x].holder == NOBODY -> c[x].st = ENDED
	:: else ->
		over[c[x].holder] = 1; c[x].holder = NOBODY;
		c[x].st = (c[x].broken -> ENDED : LEAVING);
#ifndef FAULT_LOSS_WAKES_NOBODY
		c[x].wakes = 1
#endif
	fi
}

/* -------- one goroutine -------- */

proctype goroutine(byte g) {
	byte left = CALLS;
	bit kept;
	byte old;
	bit after;	/* nextAfterLeave */
	do
	:: left == 0 -> break
	:: left > 0 ->
		left--;
join:		atomic { room ->	/* localQueues.join */
			if
			:: !hasFront && claim == NOCLAIM -> becomeFront(g); goto front
			:: else -> waiting[n] = g; n++
			fi
		};

		/* awaitWakeup, lockInQueue */
wait:		if
		:: atomic { wakeup[g] == FRONT -> wakeup[g] = 0; goto front }
		:: atomic { wakeup[g] == LEASE -> wakeup[g] = 0;
			if
#ifndef FAULT_CANCELLED_KEEPS
			:: ctx[g] -> goto release	/* released in the background */
#else
			:: ctx[g] -> goto done
#endif
			:: !ctx[g] && over[g] -> h = own[g]; own[g] = NOCLAIM; tidy(h); h = 0; goto join
			:: else -> goto release
			fi }
		:: atomic { !ctx[g] -> ctx[g] = 1;	/* its context ends: localQueue.leave */
			i = 0;
			do
			:: i < n && waiting[i] != g -> i++
			:: else -> break
			od;
			if
			:: i < n ->
				do
				:: i < G - 1 -> waiting[i] = waiting[i+1]; i++
				:: else -> break
				od;
				waiting[G-1] = NOBODY; n--; i = 0; goto done
			:: else -> i = 0; goto wait	/* woken at the same time */
			fi }
		fi;

		/* lockAsFront, obtain, step */
front:		if
		:: atomic { c[own[g]].st == NEW && !ctx[g] ->	/* Enter, and its answer */
			if
			:: c[own[g]].tok == 0 && !c[own[g]].broken ->
				last++; c[own[g]].tok = last; c[own[g]].reserved = HANDOFF; last = last + HANDOFF - 1
			:: c[own[g]].broken -> c[own[g]].st = ENDED; goto front	/* a tombstone */
			:: else		/* it is in line already */
			fi;
			if
			:: true ->
				c[own[g]].drawn = c[own[g]].tok; c[own[g]].span = HANDOFF; c[own[g]].used = 0;
				if
				:: granted(own[g]) -> c[own[g]].st = HELD
				:: else -> c[own[g]].st = WAIT; c[own[g]].behind = 1
				fi;
				goto front
			:: ctx[g] = 1; goto front	/* cut short: the outcome is unknown */
			fi }
		:: atomic { c[own[g]].st == WAIT && granted(own[g]) && !ctx[g] -> c[own[g]].st = HELD; goto front }
		:: atomic { c[own[g]].st == HELD && !ctx[g] ->	/* grantFront */
			grant(own[g], g); hasFront = 0; goto release }
		:: atomic { (c[own[g]].st == ENDED || c[own[g]].st == LEAVING) && !ctx[g] && room ->	/* enterAnew */
			old = own[g];
			if
			:: c[old].tok != 0 -> c[old].st = LEAVING
			:: else
			fi;
			newClaim(own[g]) };
			atomic { claim = own[g]; tidy(old); old = 0; goto front }	/* replaceClaim */
		:: ctx[g] = 1 -> goto giveup
		:: ctx[g] -> goto giveup
		fi;

giveup:		atomic { room ->	/* frontGaveUp */
			kept = (n > 0 && c[own[g]].st != ENDED);
			if
			:: !kept -> claim = NOCLAIM
			:: else
			fi;
#ifndef FAULT_FRONT_WAKES_NOBODY
			wakeNext()
#else
			hasFront = 0
#endif
		};
		atomic {	/* giveUp */
			h = own[g]; own[g] = NOCLAIM;
			if
			:: kept
			:: !kept && c[h].tok != 0 -> c[h].st = LEAVING
			:: else -> c[h].st = ENDED; tidy(h)
			fi;
			h = 0; kept = 0; goto done
		};

		/* the work, then beginRelease */
release:	atomic {
			h = own[g];
			if
			:: over[g] -> own[g] = NOCLAIM; tidy(h); h = 0; goto done
			:: else -> c[h].holder = NOBODY; h = 0
			fi
		};
		atomic { room ->	/* giveBack, handOff */
			if
			:: claim == own[g] && keeps(own[g]) ->
				h = own[g]; own[g] = NOCLAIM; pass(h); tidy(h); h = 0; goto done
			:: claim == own[g] && n > 0 && healthy(own[g]) -> goto ends	/* little of the lease is left */
			:: claim != own[g] -> after = 0
			:: claim == own[g] && !keeps(own[g]) -> goto ends
			fi;
			goto leave;
ends:			claim = NOCLAIM;
			if
			:: c[own[g]].behind -> hasFront = 1; after = 1
			:: else -> wakeNext()
			fi
		};
leave:		atomic {	/* claim.leave: at once, or in the background after a budget */
			h = own[g]; own[g] = NOCLAIM; c[h].st = LEAVING;
			if
			:: c[h].tok = 0; c[h].st = ENDED; tidy(h)
			:: true
			fi;
			h = 0
		};
		if
		:: atomic { after && room -> after = 0; wakeNext() }	/* wakeAfterLeave */
		:: !after
		fi;
done:		atomic { ctx[g] = 0; over[g] = 0; own[g] = NOCLAIM }
	od
}

/* -------- what the Client does in the background, and the store -------- */

/* background is what happens to the claim x beside the goroutines. */
proctype background(byte x) {
end:	do
	:: atomic { c[x].st == LEAVING -> c[x].tok = 0; c[x].st = ENDED; tidy(x) }	/* tryLeave */
	:: atomic { (c[x].st == ENDED || c[x].st == LEAVING) && c[x].tok != 0 -> c[x].tok = 0 }	/* its lease ends */
	:: atomic { c[x].wakes && room -> c[x].wakes = 0;	/* claimLost */
		if
		:: claim == x && !hasFront -> claim = NOCLAIM; wakeNext()
		:: else
		fi;
		tidy(x) }
	:: atomic { (c[x].st == WAIT || c[x].st == HELD) && losses < LOSSES -> losses++; lose(x) }	/* it expires */
	:: atomic { c[x].tok != 0 && losses < LOSSES -> losses++; c[x].tok = 0; c[x].broken = 1 }	/* Break */
	:: atomic { (c[x].st == WAIT || c[x].st == HELD) && c[x].broken -> lose(x) }	/* and the process hears of it */
	:: atomic { c[x].reserve == 1 ->	/* Reserve, in the store */
		if
		:: c[x].tok != 0 && alone(x) -> c[x].reserve = 2;
			last = last + (c[x].span + HANDOFF - c[x].reserved);
			c[x].reserved = c[x].span + HANDOFF
		:: c[x].reserve = 3	/* refused, or never applied */
		fi }
	:: atomic { c[x].reserve >= 2 && room ->	/* localQueue.reserve, from its answer on */
		if
		:: c[x].reserve == 2 -> c[x].span = c[x].span + HANDOFF
#ifdef FAULT_RESERVE_UNANSWERED
		:: c[x].reserve == 3 -> c[x].span = c[x].span + HANDOFF
#else
		:: c[x].reserve == 3 -> c[x].contended = 1
#endif
		:: c[x].reserve == 2 -> c[x].contended = 1	/* its answer is lost */
		fi;
		c[x].reserve = 0;
		if
		:: claim == x && parked ->	/* unparkLocked */
			hasFront = 0; parked = 0;
			if
			:: keeps(x) -> pass(x)
			:: else ->
				if
				:: c[x].tok != 0 -> c[x].st = LEAVING
				:: else -> c[x].st = ENDED
				fi;
				claim = NOCLAIM; wakeNext()
			fi
		:: else
		fi;
		tidy(x) }
	od
}

/* At the end nothing is left: no ghost in the store, and nothing in the queue. */
proctype quiet() {
	atomic { timeout ->
		assert(claim == NOCLAIM && !hasFront && !parked && n == 0 && rival == 0);
		i = 0;
		do
		:: i < M -> assert(c[i].tok == 0); i++
		:: else -> break
		od;
		i = 0 }
}

proctype other() {
	byte left = CALLS;
	do
	:: left > 0 ->
		left--;
		atomic { last++; rival = last; grants = 0 };
		atomic { rivalFirst -> rivalIn = 1; grants = 0;
			assert(rival > top); top = rival;		/* tokens rise */
			i = 0;
			do
			:: i < M -> assert(c[i].st == 0 || c[i].holder == NOBODY || c[i].broken); i++
			:: else -> break
			od;
			i = 0 };
		atomic { rivalIn = 0; rival = 0; lower() }
	:: left == 0 -> break
	od
}

init {
	atomic {
		i = 0;
		do
		:: i < M -> c[i].holder = NOBODY; i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < G -> run goroutine(i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < M -> run background(i); i++
		:: else -> break
		od;
		i = 0;
		run other();
		run quiet()
	}
}
