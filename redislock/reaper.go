package redislock

import "time"

// remains are a contender that nobody wants any more, and when its lease is over at the latest, if
// everything that was sent has been executed or never will be.
type remains struct {
	contender *contender
	until     time.Duration
}

// remove tries once to remove a contender, and reports whether it is certain to be gone.
func (s *store) remove(item *remains) bool {
	c := item.contender
	_, err := c.claim.release(c.id)
	if classify(err) != done && s.now() < item.until {
		return false
	}
	s.byID.Delete(c.id)
	return true
}

// release removes a contender, and reports whether it was there.
func (l *claim) release(id string) (removed bool, err error) {
	words, err := l.do(l.store.ctx, "release", id)
	return err == nil && len(words) == 1 && words[0] == "1", err
}
