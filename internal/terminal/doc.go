// Package terminal prints text for people: the commands fencelock and fencelock-lab
// share it.
package terminal
