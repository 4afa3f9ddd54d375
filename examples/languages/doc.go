// Package languages has a lock for Python and one for Node.js, each in a few lines over the
// command fencelock, and the test that programs in both exclude each other and a shell.
package languages
