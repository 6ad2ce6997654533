// Package slots runs a job once per slot of a schedule, in one of many processes.
//
//	report := slots.New(locks.Mutex("/jobs/report"), slots.Every(time.Hour, time.Time{}))
//	err := report.Run(ctx, func(ctx context.Context, slot slots.Slot) error {
//		return makeReport(ctx, slot.Time) // ctx ends if the lock is lost
//	})
//
// Call Run in every process. The process that gets the lock keeps it and runs all slots; the others wait to take over. A ledger beside the
// lock (see [tier.Hold.Save]) says which slot was begun and how it ended. Therefore a slot runs once, however short the job is, however
// much the clocks differ, and also if the process dies. Caution: the ledger is the value of the lock. Do not save another one there.
//
// # What is promised
//
// No slot is begun twice, with two exceptions that you choose: [AfterCrash] with [Retry], and [AfterError]. By default a slot whose
// process crashed during the run is skipped. A run that loses the lock counts as crashed, and so does one that returns an error after ctx
// has ended.
//
// Slots start by the clock of the process that has the lock. If the next process has an earlier clock, slots that were begun do not run
// again; its next slot starts later by the difference. Only the newest slot that was missed runs, unless [CatchUp] says otherwise.
//
// The lock protects the run as any lock does: a process that is paused may work on after another one has taken over. Use [Slot.Token] or
// guarded writes for what must not be written late.
//
// # Schedules
//
// A [Schedule] is a function that returns the next time after a time. [Every] gives intervals from an origin that all processes share. The
// Next method of a schedule of robfig/cron is one, too:
//
//	daily, err := cron.ParseStandard("CRON_TZ=Europe/Berlin 0 3 * * *")
//	…
//	report := slots.New(mutex, daily.Next)
//
// Without CRON_TZ, cron expressions are in UTC. When clocks change for summer time, that parser decides: a time that does not exist has no
// slot on that day, and a time that exists twice has two.
//
// The processes should have the same schedule. During a rollout, the schedule of the process that has the lock counts, from the slot after
// the last one that was begun. A process that finds a ledger of another schedule logs a warning.
//
// # What it costs
//
// A slot takes two writes: one to begin it, and one to end it. A process that takes over loads the ledger once. Waiting processes cost
// nothing but their place in the queue.
package slots
