// Package languages plays the conformance list of clients/conformance with the clients and
// runners of other languages, each in its real interpreter, against a real server.
package languages
