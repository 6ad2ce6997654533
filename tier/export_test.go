package tier

// Cohorts returns the number of lock paths that a registry knows of.
func Cohorts(r *Registry) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.cohorts)
}

// Endings returns the number of ends that a hold remembers for its contexts.
func Endings(h *Hold) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.endings)
}
