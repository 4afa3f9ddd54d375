// Package reports holds a test for each fault that was found from outside: by a program
// written against the library, by a public bug report of another lock library, or by an
// attack. Each test is named after what a user did. README.md says what each of them found.
package reports
