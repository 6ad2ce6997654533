package tier

// A decision says what becomes of the node when its owner has released it.
type decision int

const (
	giveUp  decision = iota // delete it; waiters, if any, start anew
	requeue                 // give it up and queue again for the waiters, in one transaction
)

// afterReleaseLocked decides. The order is strict: the node goes at every release.
func (c *cohort) afterReleaseLocked(own *ownership) decision {
	if c.gate.empty() || own.node.Err() != nil {
		return giveUp
	}
	return requeue
}
