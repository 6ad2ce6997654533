package evidence

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
)

// Passage describes how a process got the lock from another one. HandOver is the time in which no process was in a section. Away is the
// time since the last section of this process.
type Passage struct {
	HandOver time.Duration
	Away     time.Duration // zero before the first section of this process
}

// Arrive is called at the beginning of a section, with the instant at which the process has acquired the lock. If the lock does not come
// from another process, Arrive returns false.
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

// Depart is called at the end of a section, while the process still has the lock.
func (r *Register) Depart(process int64, left clock.Instant) {
	r.mine.Store(int64(left))
	r.record.left.Store(int64(left))
	r.record.leaver.Store(process)
}
