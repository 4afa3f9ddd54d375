// Package check judges what package traffic has written down.
//
// It judges twice. The sweep of internal/history goes through all events in the order
// of time; the model of package model asks of each key whether its operations can have
// happened one after the other. What the sweep finds, the model must find: otherwise one
// of the two is wrong, and that is a failure too. The model finds more: it orders grants
// that were concurrent, and asks of each refusal who was in the way.
//
// Beside that it judges what the two do not see:
//
//	I3    loss       a lease never says that it is held after its deadline, and its context ends then
//	I7    release    a lock that was lost says so when it is given back
//	I8    residue    in the end the store holds no claim, and every key can be had
//	set   updates    what the guarded resource has acknowledged is there in the end
//	hang  calls      return when their context ends, releases within two seconds
//
// The scheduling allowance ε is the largest delay of a timer that any process of the run
// has seen, while it was not stopped. It is measured, never guessed. Safety needs none:
// see package traffic.
package check
