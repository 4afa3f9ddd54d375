// Package torture runs locks in many processes at once, breaks what they live on, and
// judges what came of it.
//
// A run has a folder. There each process leaves its part of the history, and so do the
// nemesis, the guarded resource and the run itself; what package check finds in it is
// written beside it for people. The folder is kept.
//
// [Run] needs a program that becomes a worker when it is started with an order in its
// environment: call [traffic.Worker] first thing in main, or in TestMain.
package torture
