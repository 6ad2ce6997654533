package tier

// Cohorts returns the number of lock paths that a registry knows of.
func Cohorts(r *Registry) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.cohorts)
}
