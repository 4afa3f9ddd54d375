package httplock

import "time"

type meter struct{}

func (m *meter) init()                            {}
func (m *meter) count(string, int, time.Duration) {}
func (s *Server) metrics(*call) (any, error)      { return text{plainText, "\n"}, nil }
func (s *Server) openapi(*call) (any, error)      { return text{plainText, "\n"}, nil }
