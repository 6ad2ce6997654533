package tier

// Cohorts returns the number of lock paths that a registry knows of.
func Cohorts(r *Registry) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.cohorts)
}

// Derived returns the number of contexts that a hold knows of.
func Derived(h *Hold) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.derived)
}
