package memlock

// Processes is how many processes a server knows.
func Processes(s *Server) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.processes)
}
