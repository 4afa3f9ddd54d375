package httplock

import "github.com/fencelock/fencelock/fence"

const (
	eventBroken   = "broken"
	eventReleased = "released"
)

type events struct{}

func (e *events) init(*Server)                              {}
func (e *events) changed(string)                            {}
func (e *events) ended(string, fence.Token, string, string) {}
func (s *Server) serveEvents(*call) (any, error)            { return nil, comeAgain(1) }
