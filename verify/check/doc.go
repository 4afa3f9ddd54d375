// Package check judges what package traffic has written down.
//
// Two checkers judge: the sweep of internal/history, and package model. The model must find
// what the sweep finds; a disagreement is a failure. The model also orders concurrent
// grants, and asks who was in the way of a refusal. This package judges the rest:
//
//	I3    loss       a lease never says that it is held after its deadline, and its context ends then
//	I7    release    a lock that was lost says so when it is given back
//	I8    residue    in the end the store holds no claim, and every key can be had
//	set   updates    what the guarded resource has acknowledged is there in the end
//	hang  calls      return when their context ends, releases within two seconds
//
// Progress has a scheduling allowance ε: the largest measured delay of a timer in a process
// that was not stopped. Safety needs none: see package traffic.
package check
