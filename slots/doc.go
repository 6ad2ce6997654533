// Package slots runs a job once per slot of a schedule, in one of many processes.
//
//	report := slots.New(locks.Mutex("/jobs/report"), slots.Every(time.Hour, time.Time{}))
//	err := report.Run(ctx, func(ctx context.Context, slot slots.Slot) error {
//		return makeReport(ctx, slot.Time) // ctx ends if the lock is lost
//	})
//
// Call Run in every process. The process that gets the lock keeps it and runs all slots. The other processes wait to take over. A ledger
// beside the lock (see [tier.Hold.Save]) records which slot was begun last, and how this slot ended. Therefore a slot runs at most once,
// unless you choose one of the options below. This is true even if the job is very short, if the clocks of the processes differ, or if a
// process dies. Caution: the ledger is the value of the lock. Do not save another value there. On Redis, a maxmemory-policy may allow the
// server to evict the ledger. If the server shows such a policy, Run returns an error.
//
// # What is promised
//
// No slot begins twice, with two exceptions that you choose: [AfterCrash] with [Retry], and [AfterError]. If the process crashes during a
// run, the slot is skipped by default. A run that loses the lock counts as crashed. A run that returns an error after ctx has ended also
// counts as crashed.
//
// Slots start by the clock of the process that has the lock. If the next process to get the lock has a clock that is behind, it does not
// run the same slots again. Its next slot starts later by the difference of the clocks. Of the slots that were missed, only the newest
// runs; [CatchUp] changes this number.
//
// Caution: if a process is paused, it may continue to work after another process has taken over. If a late write does harm, use
// [Slot.Token] or guarded writes.
//
// # Schedules
//
// A [Schedule] is a function that returns the next slot after a given time. [Every] returns a schedule with a fixed interval, counted from
// an origin that all processes share. You can also use the method Next of a schedule of robfig/cron:
//
//	daily, err := cron.ParseStandard("CRON_TZ=Europe/Berlin 0 3 * * *")
//	…
//	report := slots.New(mutex, daily.Next)
//
// Without CRON_TZ, cron expressions are in UTC. When the clocks change for summer time, the parser of robfig/cron decides: a local time
// that does not exist on a day has no slot on that day, and a local time that exists twice has two slots.
//
// All processes should have the same schedule. During a rollout of a new schedule, the schedule of the process that has the lock applies,
// from the slot after the last begun slot. If a process finds that the ledger was written with another schedule, it logs a warning.
//
// # With another scheduler
//
// A scheduler that has its own loop calls [Job.Begin] instead of Run, in each process, when it starts a run. Packages gocronlock and
// cronlock do this for gocron and robfig/cron. A slot then runs at most once, in the process that calls Begin first. Missed slots do not
// run later. If the clock of one process is ahead, this process runs each slot early, and the other processes find that the slot was begun.
//
// # What it costs
//
// A slot takes two writes: one at its beginning and one at its end. A process that takes over loads the ledger once. A waiting process
// keeps its place in the queue of the lock, and sends no requests for slots. With Begin, a slot takes six requests in the process that runs
// it, and one or two requests in each other process. On ZooKeeper, these numbers are about twice as high.
package slots
