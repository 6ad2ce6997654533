package evidence

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
)

// Passage describes how the lock came from another process: the time in which no process was in a section, and the time since this
// process was in one.
type Passage struct {
	HandOver time.Duration
	Away     time.Duration // zero before the first section of this process
}

// Arrive is called in a section of a process that has acquired the lock at an instant. Arrive reports false if the lock did not come from
// another process.
func (r *Register) Arrive(process int64, got clock.Instant) (p Passage, passed bool) {
	leaver := r.record.leaver.Load()
	if leaver == 0 || leaver == process {
		return p, false
	}
	p.HandOver = max(0, got.Sub(clock.Instant(r.record.left.Load())))
	if mine := clock.Instant(r.mine.Load()); mine != 0 {
		p.Away = got.Sub(mine)
	}
	return p, true
}

// Depart is called in a section at its end.
func (r *Register) Depart(process int64, left clock.Instant) {
	r.mine.Store(int64(left))
	r.record.left.Store(int64(left))
	r.record.leaver.Store(process)
}
