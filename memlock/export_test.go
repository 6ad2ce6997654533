package memlock

// Processes returns the number of processes that a server knows.
func Processes(s *Server) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.processes)
}
