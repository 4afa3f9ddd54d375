// Package driver is the contract between fencelock and the stores that keep its
// locks. Programs do not use it; they use package fencelock. It is here for
// those who write a backend, or test one with package drivertest.
//
// # The line
//
// Each key has one line of claims, in order of arrival. A claim is granted when
// its weight plus the weights of all live claims before it fit its capacity:
//
//	granted(c)  ⇔  weight(c) + Σ weight(b) for every live b before c  ≤  capacity(c)
//
// Nothing else decides which claims are granted. A mutex and the writer of a read-write
// lock have weight RW and capacity RW, a reader has weight 1 and capacity RW, a claim on
// a semaphore of n has weight 1..n and capacity n < RW. Claims only join behind, so a
// grant never reverts except by leaving, by expiry, or by an operator's Break. All claims
// of a line have one capacity, so the order of grants is the order of arrival.
//
// # The laws
//
// Package drivertest tests them, most under the name given here, larger ones as a topic
// of several tests. Atomic and ServerClock are conditions that several tests need.
//
//   - Atomic: each method is one atomic step on the server. Backends do not retry; the core does. A
//     backend may repeat a step only if it knows that the server did not apply the step (a script that
//     was not cached, a transaction that was rolled back to end a deadlock).
//   - Token: the token is drawn when the claim enters the line, under the same lock that orders the
//     line: max(last+1, the server's clock in µs since 1970). It reserves Span tokens. The memory of
//     last may be dropped only when the clock has overtaken it for 24 hours.
//   - After: a claim with After draws max(last+1, After+1), without the clock. A lock that is
//     held in two stores at once has one token in both that way, and the tokens of the first
//     store still rise past it.
//   - EnterRenews: Enter of an ID that is in line never makes a second claim. The law is about two
//     Enters through one Backend value.
//   - ReusedID: a claim for which Enter returns ErrReused goes on as it was: its lease, its place, its
//     wake-up.
//   - RepeatedEnter: Enter of an ID that is in line changes neither the owner, the note, the trace
//     nor the lock-delay of that claim.
//   - TextIsKept: Line shows the owner, the note, the trace and the lock-delay of each claim as they
//     were entered, and so do Enter's refusal and Ticket.Head, but for the lock-delay.
//   - LeftFromSending: Left counts from the moment the call was sent, never from when the answer came.
//   - NoResurrection: Renew returns GoneError for a claim that is not in line, whatever emptied the
//     line, and never makes a claim. It never shortens a lease.
//   - Tombstone: what Exit.Tombstone says.
//   - LeaveIfWaiting: Leave with Exit.IfWaiting never ends a grant that a call has returned,
//     through any Backend: it removes the claim, or returns ErrGranted, in one atomic step.
//   - Mark: a mark is written only if the claim is alive and granted in that very
//     step, and if it is above the line's, byte by byte. The line keeps the ID of the last
//     claim that left with a mark, so a repeated Leave of that ID returns nil.
//   - Linger: a claim that left with Linger counts on for that long by the
//     server's clock, cannot be renewed, and cannot leave again; a late Enter of
//     its ID returns GoneError. So does a granted claim that was broken with a delay: see Break.Delay.
//   - Notice: what Break.Notice says, whether or not the claim is renewed. Line shows it to others:
//     see Standing.Reason.
//   - WakeAll: whatever removes a claim (Leave, Break, a purge) wakes every claim that it makes granted,
//     not only the first, and also when the claim removed was itself waiting.
//   - Kind: the first live claim of a line sets its capacity. Enter with another capacity returns
//     ErrKind until the line is empty. Only Enter judges that, after purging what has expired.
//   - NoTrace: Enter with NoWait that is refused leaves nothing of the claim.
//   - ServerClock: expiry is judged by the server's clock alone.
//   - Hygiene: an empty line leaves nothing behind but its counter (for a day or so) and its mark.
package driver
