package zklock

// StopWatchdog makes the process blind for the end of its lease, as a process is that was
// stopped: only who looks at the clock knows.
func (n *Node) StopWatchdog() {
	n.session.mu.Lock()
	defer n.session.mu.Unlock()
	n.session.watchdog.Stop()
}
