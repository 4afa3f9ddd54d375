// Package lab plays the schemes that tutorials teach, breaking.
package lab
