// Package torture runs locks in many processes at once, breaks what they live on, and
// judges what came of it.
//
// A run keeps a folder with its history, and a report of what package check finds in it.
// [Run] needs a program that becomes a worker when it is started with an order in its
// environment: call [traffic.Worker] first thing in main, or in TestMain.
package torture
