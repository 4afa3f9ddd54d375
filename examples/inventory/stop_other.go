//go:build !unix

package main

import "errors"

var errNoSignals = errors.New("this system cannot stop a process and let it go on")

func (p *process) stop() error { return errNoSignals }

func (p *process) goOn() error { return errNoSignals }
