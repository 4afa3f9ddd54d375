package sqllock

func (s *sqlite) listen() bell { return listenTo(s.path()) }

func (s *sqlite) ring() { ringAt(s.path()) }
