/*
 * quorum.pml: clients that propose ballots to the members of a quorum, over a network that
 * loses and delays, while members lose their memory. README.md maps each part to the Go code.
 *
 * Three members. Each client makes one claim on one key, with up to VOTES votes; its next
 * claim would have another ID, and would be a client more.
 */
#ifndef P
#define P 2		/* clients */
#endif
#ifndef VOTES
#define VOTES 1		/* votes of one Enter */
#endif
#ifndef BALLOTS
#define BALLOTS 2	/* a ballot is a number from 1 to this: clocks may be far apart */
#endif
#ifndef T
#define T 2		/* ticks in a lease, and in a quarantine */
#endif
#ifndef FORGETS
#define FORGETS 1	/* how often a member loses its memory */
#endif
#ifndef RENEWALS
#define RENEWALS 1	/* renewals of one grant */
#endif
#ifndef LOSSES
#define LOSSES 1	/* requests and answers that are lost or late */
#endif

#define Q	3
#define NOBODY	P
#ifdef FAULT_HALF_IS_A_MAJORITY
#define MAJORITY 1
#else
#define MAJORITY 2
#endif

/* -------- a member: internal/testmember/member.go -------- */

typedef Member {
	unsigned holder : 2;	/* whose claim is here, or NOBODY */
	unsigned token : 3;
	unsigned lease : 2;
	unsigned floor : 3;	/* the largest ballot granted: lastToken */
	unsigned forgot : 3;	/* the largest ballot that it granted and has forgotten */
	unsigned quarantine : 2	/* ticks until it takes ballots */
};
Member m[Q];

/* -------- a client and what it knows of each member: quorumlock/claim.go -------- */

#define ABSENT	0
#define PRESENT	1
#define UNKNOWN	2
#define BARRED	3

typedef Link {
	unsigned presence : 2;
	bit toEnter;		/* an Enter waits for the requests before it */
	bit toLeave;		/* a Leave waits for the requests before it */
	unsigned enter : 3;	/* the ballot of the Enter or Reenter under way, or 0 */
	bit again;		/* it is a Reenter */
	unsigned late : 3;	/* the ballot of an Enter that nobody waits for, or 0 */
	bit lateAgain;
	bit leave;		/* a Leave under way */
	bit renew;		/* a Renew under way */
	bit tomb;		/* the member keeps a tombstone */
	unsigned sent : 3;	/* nodeClaim.ballot: the one that was sent last */
	bit answered;		/* in this vote or renewal */
	unsigned got : 3;	/* the token that this vote got, or 0 */
	bit acked;
	bit gone;
	unsigned over : 3	/* history: a Leave was applied after this ballot */
};
Link l[P*Q];

#define IDLE	0
#define VOTING	1
#define HELD	2
#define OVER	3

typedef Client {
	unsigned st : 2;
	unsigned ballot : 3;
	unsigned votes : 2;
	unsigned fresh : 2;	/* the lease of the vote or renewal, counted from its sending */
	unsigned belief : 2;
	unsigned renewals : 2;
	bit renewing
};
Client c[P];

byte top = 0;			/* history: the largest token with which a client was inside */
byte forgets = 0;
byte losses = 0;

/* scratch of one step */
byte i, j, k, n, ok;

#define x(p, i)		l[(p)*Q + (i)]
#define mayBe(p, i)	(x(p, i).presence == PRESENT || x(p, i).presence == UNKNOWN)
#define inside(p)	(c[p].st == HELD && c[p].belief > 0)

inline done() { i = 0; j = 0; k = 0; n = 0; ok = 0 }

/* judge: what the member d answers to the ballot b of client p. ok: the claim is in line. */
inline memberEnter(p, d, b, reenter) {
	ok = 0;
	if
	:: m[d].holder == p -> ok = 1; m[d].lease = T	/* the claim with that ID first */
	:: m[d].holder != p && x(p, d).tomb
	:: m[d].holder != p && !x(p, d).tomb && m[d].holder != NOBODY	/* busy */
	:: m[d].holder == NOBODY && !x(p, d).tomb ->
		if
#ifndef FAULT_NO_QUARANTINE
		:: m[d].quarantine > 0
#endif
#ifndef FAULT_BELOW_FLOOR
		:: !reenter && b <= m[d].floor
#endif
		:: reenter && b < m[d].floor
		:: else ->
			assert(b > x(p, d).over);	/* no ghost: what has left does not come back */
			ok = 1;
			m[d].holder = p; m[d].token = b; m[d].lease = T;
			if
			:: b > m[d].floor -> m[d].floor = b
			:: else
			fi
		fi
	fi
}

inline memberForget(d) {
	m[d].holder = NOBODY; m[d].token = 0; m[d].lease = 0
}

/* hold: a majority has granted one token in time. */
inline hold(p, token) {
	c[p].st = HELD; c[p].ballot = token; c[p].belief = c[p].fresh; c[p].fresh = 0;
	j = 0;
	do
	:: j < P -> assert(j == p || !inside(j)); j++		/* one writer inside */
	:: else -> break
	od;
	assert(token > top);					/* tokens rise */
	top = token
}

/* winner: the token that a majority has granted, or 0. */
inline winner(p) {
	n = 0; i = 0;
	do
	:: i < Q ->
		j = 0; k = 0;
		do
		:: j < Q ->
			if
			:: x(p, i).got != 0 && x(p, j).got == x(p, i).got -> k++
			:: else
			fi;
			j++
		:: else -> break
		od;
		if
		:: k >= MAJORITY && x(p, i).got > n -> n = x(p, i).got
		:: else
		fi;
		i++
	:: else -> break
	od
}

/* What no later step can read is set to zero, so that equal futures are equal states. */
inline tidy(p, d) {
	if
	:: c[p].st == OVER && !x(p, d).toLeave && x(p, d).enter == 0 && x(p, d).late == 0 && !x(p, d).leave ->
		x(p, d).presence = ABSENT; x(p, d).tomb = 0; x(p, d).sent = 0; x(p, d).over = 0; x(p, d).renew = 0
	:: else
	fi
}

/* retreat, or the Leave of a grant: from all members that may have the claim. */
inline leaveAll(p) {
	i = 0;
	do
	:: i < Q ->
		x(p, i).toEnter = 0; x(p, i).got = 0; x(p, i).answered = 0; x(p, i).acked = 0; x(p, i).gone = 0;
		if
		:: x(p, i).enter != 0 -> x(p, i).toLeave = 1
		:: x(p, i).enter == 0 && mayBe(p, i) -> x(p, i).leave = 1
		:: else
		fi;
		tidy(p, i);
		i++
	:: else -> break
	od
}

/* ticket: a majority has answered, while the lease is of use. The caller counts as soon as
 * an answer is there: later it would believe for a shorter time. */
inline ticket(p) {
	winner(p);
	if
#ifndef FAULT_LATE_MAJORITY
	:: n > 0 && c[p].fresh > 0 ->
#else
	:: n > 0 ->
		c[p].fresh = T;
#endif
		hold(p, n); c[p].votes = 0;
		i = 0;
		do
		:: i < Q -> x(p, i).answered = 0; x(p, i).got = 0; x(p, i).toEnter = 0; i++
		:: else -> break
		od
	:: else
	fi
}

inline finish(p) {
	c[p].st = OVER; c[p].ballot = 0; c[p].belief = 0; c[p].fresh = 0; c[p].renewing = 0;
	c[p].renewals = 0; c[p].votes = 0;
	leaveAll(p)
}

#ifdef FAULT_LEAVE_OVERTAKEN
#define mayEnter(p, d)	(x(p, d).enter == 0)
#else
#define mayEnter(p, d)	(x(p, d).enter == 0 && !x(p, d).toLeave && !x(p, d).leave)
#endif

/* enterNode: the Enter is sent, unless requests are before it. */
inline send(p, d) {
	if
	:: x(p, d).toEnter && mayEnter(p, d) ->
		x(p, d).toEnter = 0;
		if
		:: x(p, d).presence == BARRED || c[p].fresh == 0 -> x(p, d).answered = 1
		:: else -> x(p, d).enter = c[p].ballot; x(p, d).again = 0; x(p, d).sent = c[p].ballot
		fi
	:: else
	fi
}

inline propose(p) {
	c[p].st = VOTING; c[p].votes++; c[p].fresh = T;
	i = 0;
	do
	:: i < Q -> x(p, i).answered = 0; x(p, i).got = 0; x(p, i).toEnter = 1; send(p, i); i++
	:: else -> break
	od
}

/* entered: how an answer changes what the client knows. */
inline entered(p, d, yes) {
	if
	:: x(p, d).presence == UNKNOWN || x(p, d).presence == BARRED
	:: else -> x(p, d).presence = (yes -> PRESENT : ABSENT)
	fi
}

#define allAnswered(p)	(x(p, 0).answered && x(p, 1).answered && x(p, 2).answered)
/* Members are alike: their order is the one in which they answer the first vote. */
#define inOrder(p, d)	((p) != 0 || (d) == 0 || c[0].st != VOTING || c[0].votes != 1 || x(0, (d) - 1).enter == 0)
#define mayBegin(p)	((p) == 0 || c[(p) - 1].st != IDLE)	/* clients are alike */

proctype client(byte p) {
	do
	:: atomic { c[p].st == IDLE && mayBegin(p) ->
		c[p].ballot = 1;
		do
		:: c[p].ballot < BALLOTS -> c[p].ballot++
		:: break
		od;
		propose(p); done() }
	/* a vote that has failed: another with a larger ballot, or none */
	:: atomic { c[p].st == VOTING && (allAnswered(p) || c[p].fresh == 0) ->
		if
		:: c[p].votes < VOTES && c[p].ballot < BALLOTS ->
			leaveAll(p);
			c[p].ballot++;
			do
			:: c[p].ballot < BALLOTS -> c[p].ballot++
			:: break
			od;
			propose(p)
		:: finish(p)
		fi;
		done() }
	:: d_step { c[p].st == HELD && !c[p].renewing && c[p].renewals < RENEWALS && c[p].belief < T ->
		c[p].renewing = 1; c[p].renewals++; c[p].fresh = T;
		i = 0;
		do
		:: i < Q -> x(p, i).renew = 1; x(p, i).acked = 0; x(p, i).gone = 0; i++
		:: else -> break
		od;
		done() }
	/* Release, or the end of the context; or its process is killed */
	:: atomic { c[p].st == HELD || c[p].st == VOTING ->
		finish(p);
		if
		:: true
		:: true ->
			i = 0;
			do
			:: i < Q -> x(p, i).toLeave = 0; x(p, i).leave = 0; tidy(p, i); i++
			:: else -> break
			od
		fi;
		done() }
	od
}

/* link is what passes between client p and member d, one request after the other. */
proctype link(byte p; byte d) {
	do
	/* enterNode */
	:: d_step { x(p, d).toEnter && mayEnter(p, d) -> send(p, d) }
	:: atomic { x(p, d).enter != 0 && inOrder(p, d) ->
		memberEnter(p, d, x(p, d).enter, x(p, d).again);
		if
		:: true ->	/* its answer */
			entered(p, d, ok);
			if
			:: c[p].st == VOTING && c[p].ballot == x(p, d).enter && !x(p, d).again ->
				x(p, d).answered = 1;
				x(p, d).got = (ok -> m[d].token : 0);
				ticket(p)
			:: else
			fi
		:: losses < LOSSES -> losses++;		/* is lost */
			x(p, d).presence = UNKNOWN; x(p, d).answered = (c[p].st == VOTING)
		fi;
		x(p, d).enter = 0; x(p, d).again = 0; tidy(p, d); done() }
	:: atomic { x(p, d).enter != 0 && inOrder(p, d) && losses < LOSSES ->	/* no answer in time: it is lost, or arrives later */
		losses++;
		if
		:: x(p, d).late = x(p, d).enter; x(p, d).lateAgain = x(p, d).again
		:: true
		fi;
		if
		:: x(p, d).presence != BARRED -> x(p, d).presence = UNKNOWN
		:: else
		fi;
		x(p, d).answered = (c[p].st == VOTING); x(p, d).enter = 0; x(p, d).again = 0 }
	:: d_step { x(p, d).late != 0 ->
		memberEnter(p, d, x(p, d).late, x(p, d).lateAgain);
		x(p, d).late = 0; x(p, d).lateAgain = 0; tidy(p, d); done() }
	:: d_step { x(p, d).late != 0 -> x(p, d).late = 0; x(p, d).lateAgain = 0; tidy(p, d) }

	/* leaveNode */
	:: d_step { x(p, d).toLeave && x(p, d).enter == 0 && !x(p, d).leave ->
		x(p, d).toLeave = 0;
		x(p, d).leave = mayBe(p, d); tidy(p, d) }
	:: atomic { x(p, d).leave ->
#ifndef FAULT_NO_TOMBSTONE
		x(p, d).tomb = x(p, d).tomb || x(p, d).presence != PRESENT;
#endif
		x(p, d).over = x(p, d).sent;
		if
		:: m[d].holder == p -> memberForget(d)
		:: else
		fi;
		x(p, d).leave = 0;
		if
		:: x(p, d).presence == PRESENT -> x(p, d).presence = ABSENT
		:: x(p, d).presence != PRESENT -> x(p, d).presence = BARRED
		:: x(p, d).presence == PRESENT && losses < LOSSES -> losses++; x(p, d).presence = BARRED	/* no answer */
		fi;
		tidy(p, d) }
	:: d_step { x(p, d).leave && losses < LOSSES -> losses++;	/* no answer in time: it may still arrive */
		x(p, d).presence = BARRED }
	:: d_step { x(p, d).leave && x(p, d).presence == BARRED -> x(p, d).leave = 0; tidy(p, d) }

	/* renewNode, checkGrant, putBack */
	:: atomic { x(p, d).renew ->
		x(p, d).renew = 0;
		if
		:: m[d].holder == p -> m[d].lease = T; ok = 1
		:: else -> ok = 0
		fi;
		if
		:: c[p].st == HELD && c[p].renewing ->
			if
			:: ok && mayBe(p, d) && x(p, d).sent == c[p].ballot -> x(p, d).acked = 1
			:: !ok -> x(p, d).gone = 1
			:: !(ok && mayBe(p, d) && x(p, d).sent == c[p].ballot) && ok	/* it is no vote */
			:: losses < LOSSES -> losses++		/* its answer is lost */
			fi;
			n = x(p, 0).acked + x(p, 1).acked + x(p, 2).acked;
			if
#ifdef FAULT_MINORITY_RENEWS
			:: n >= 1 && c[p].fresh > 0 ->
#else
			:: n >= MAJORITY && c[p].fresh > 0 ->
#endif
				if
				:: c[p].fresh > c[p].belief -> c[p].belief = c[p].fresh
				:: else
				fi;
				i = 0;
				do
				:: i < Q ->	/* reenterNode */
					if
					:: x(p, i).gone && x(p, i).presence != BARRED && x(p, i).enter == 0 ->
						x(p, i).gone = 0; x(p, i).enter = c[p].ballot; x(p, i).again = 1;
						x(p, i).sent = c[p].ballot
					:: else
					fi;
					i++
				:: else -> break
				od
			:: else
			fi
		:: else
		fi;
		if
		:: !x(p, 0).renew && !x(p, 1).renew && !x(p, 2).renew -> c[p].renewing = 0; c[p].fresh = 0
		:: else
		fi;
		done() }
	:: d_step { x(p, d).renew && (c[p].st != HELD || losses < LOSSES) ->	/* it is lost */
		x(p, d).renew = 0; losses = losses + (c[p].st == HELD);
		if
		:: !x(p, 0).renew && !x(p, 1).renew && !x(p, 2).renew && c[p].st == HELD -> c[p].renewing = 0; c[p].fresh = 0
		:: else
		fi }
	od
}

inline tick() {
	i = 0;
	do
	:: i < P ->
		if
		:: c[i].fresh > 0 -> c[i].fresh--
		:: else
		fi;
		if
		:: c[i].belief > 0 -> c[i].belief--
		:: else
		fi;
		i++
	:: else -> break
	od;
	ok = 0;
	do
	:: ok < P ->
		if
		:: c[ok].st == HELD && c[ok].belief == 0 -> finish(ok)	/* the deadline: a loss, and a Leave */
		:: else
		fi;
		ok++
	:: else -> break
	od;
	i = 0;
	do
	:: i < Q ->
		if
		:: m[i].lease == 1 -> memberForget(i)
		:: m[i].lease > 1 -> m[i].lease--
		:: else
		fi;
		if
		:: m[i].quarantine == 1 -> m[i].quarantine = 0;
			/* max(last, now - Skew) is above all that was forgotten */
			if
			:: m[i].forgot > m[i].floor -> m[i].floor = m[i].forgot
			:: else
			fi;
			m[i].forgot = 0;
			/* No Enter is under way for longer than a TTL after the Leave of its claim. */
			n = 0;
			do
			:: n < P ->
				if
				:: x(n, i).late <= x(n, i).over -> x(n, i).late = 0; x(n, i).lateAgain = 0
				:: else
				fi;
				n++
			:: else -> break
			od
		:: m[i].quarantine > 1 -> m[i].quarantine--
		:: else
		fi;
		i++
	:: else -> break
	od
}

proctype clock() {
	do
	:: d_step { tick(); done() }
	od
}

/* Store.Flush, or a restart without persistence. */
proctype memory() {
	do
	:: atomic { forgets < FORGETS ->
		forgets++;
		if
		:: i = 0
		:: i = 1
		:: i = 2
		fi;
		if
		:: m[i].floor > m[i].forgot -> m[i].forgot = m[i].floor
		:: else
		fi;
		memberForget(i); m[i].floor = 0; m[i].quarantine = T;
		do
		:: n < P -> x(n, i).tomb = 0; n++
		:: else -> break
		od;
		done() }
	od
}

init {
	atomic {
		do
		:: i < Q -> m[i].holder = NOBODY; i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < P ->
			run client(i);
			run link(i, 0); run link(i, 1); run link(i, 2);
			i++
		:: else -> break
		od;
		run clock();
		run memory();
		done()
	}
}
