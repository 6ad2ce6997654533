package main

import "time"

// passage is how the lock came from another process: the time in which nobody was in a
// section, and the time since this process last was.
type passage struct {
	handOver time.Duration
	away     time.Duration // zero before the first section of this process
}

// arrive is called in a section of a process that got the lock at an instant. It
// reports false if the lock did not come from another process.
func (r *register) arrive(process int64, got instant) (p passage, passed bool) {
	leaver := r.record.leaver.Load()
	if leaver == 0 || leaver == process {
		return p, false
	}
	p.handOver = max(0, got.sub(instant(r.record.left.Load())))
	if mine := instant(r.mine.Load()); mine != 0 {
		p.away = got.sub(mine)
	}
	return p, true
}

// depart is called in a section at its end.
func (r *register) depart(process int64, left instant) {
	r.mine.Store(int64(left))
	r.record.left.Store(int64(left))
	r.record.leaver.Store(process)
}

// defaultHandOff is the budget of package tier.
const defaultHandOff = 20 * time.Millisecond

// awayBound is how long the lock lets a process of the run wait for the others at most,
// a budget, two sections and one hand-over for each; false if it promises nothing. What
// a section and a hand-over take is as measured: the mean, and the longest.
func (r *Result) awayBound(cfg Config) (time.Duration, bool) {
	if cfg.Lock != "tier" || r.Away == nil || cfg.Procs < 2 || r.Acquisitions == 0 {
		return 0, false
	}
	budget := defaultHandOff
	if cfg.HandOff != nil {
		budget = *cfg.HandOff
	}
	if budget > 0 {
		budget = max(budget, cfg.RTT) // of the look that shows who waits
	}
	section := time.Duration(r.Busy * float64(r.Duration) / float64(r.Acquisitions))
	return time.Duration(cfg.Procs-1) * (budget + 2*section + time.Duration(r.HandOver.Max)), true
}
