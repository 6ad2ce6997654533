package chaos

import (
	"context"
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/judge"
)

// workerFaults returns the faults of workers.
func (n *nemesis) workerFaults(f *fleet, fence *evidence.Fence) []func(context.Context) {
	someone := func() *slot { return f.slots[n.random.IntN(len(f.slots))] }
	faults := []func(context.Context){
		func(ctx context.Context) {
			s := n.holder(ctx, f, fence)
			from := clock.Now()
			s.kill()
			n.faultLog.died(s.process)
			n.pause(ctx, 0, 0.3)
			n.faultLog.did("kill worker", from, f.launch(s))
		},
		func(ctx context.Context) { n.stopWorker(ctx, n.holder(ctx, f, fence)) },
		func(ctx context.Context) { n.stopWorker(ctx, someone()) },
		func(ctx context.Context) {
			s, from := someone(), clock.Now()
			s.relay.Mute()
			n.pause(ctx, 0, 1.3)
			s.relay.Heal()
			n.faultLog.did("mute worker", from, nil)
		},
	}
	if f.template.Store.Brittle {
		return faults
	}
	return append(faults, func(ctx context.Context) {
		s, from := someone(), clock.Now()
		s.relay.Cut()
		n.pause(ctx, 0, 1.3)
		s.relay.Heal()
		n.faultLog.did("cut worker off", from, nil)
	})
}

// The method holder waits until a worker is in a section, and returns its slot. After too long a wait, it returns the first slot. It draws
// no random number, because the length of the wait does not depend on the seed.
func (n *nemesis) holder(ctx context.Context, f *fleet, fence *evidence.Fence) *slot {
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	for ; ctx.Err() == nil; clock.Sleep(time.Millisecond, ctx.Done()) {
		for _, process := range fence.Inside() {
			if s := f.slots[evidence.SlotOf(int(process), len(f.slots))]; int64(s.process) == process {
				return s
			}
		}
	}
	return f.slots[0]
}

func (n *nemesis) stopWorker(ctx context.Context, s *slot) {
	from := clock.Now()
	if !s.child.Pause() {
		return // the worker has died by itself; the end of the run will find that out
	}
	at := clock.Now()
	n.pause(ctx, 0.4, 1.6)
	n.faultLog.stopped(judge.Stop{Process: s.process, From: at, Until: clock.Now()})
	s.child.Resume()
	n.faultLog.did("stop worker", from, nil)
}
