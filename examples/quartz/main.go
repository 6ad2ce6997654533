// Quartz is a service with a go-quartz job for every second. One process runs each slot.
// Copy once.
//
//	ZK_SERVERS=127.0.0.1:2181 RUNS=/tmp/runs go run .
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/reugn/go-quartz/job"
	"github.com/reugn/go-quartz/quartz"

	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// A once is a job that runs once per slot, in one of the processes. A ledger beside the lock says which slots were begun.
type once struct {
	quartz.Job
	slots *slots.Job
}

func (o once) Execute(ctx context.Context) error {
	run, err := o.slots.Begin(ctx, time.Now())
	if errors.Is(err, slots.ErrDone) || errors.Is(err, tier.ErrLocked) {
		return nil // another process has begun this slot, or an earlier one is still running
	}
	if err != nil {
		return err
	}
	defer run.End(errors.New("the job panicked")) // after another End this has no effect
	return run.End(o.Job.Execute(run.Context()))
}

// scheduleOf returns the slots of a trigger.
func scheduleOf(trigger quartz.Trigger) slots.Schedule {
	return func(after time.Time) time.Time {
		next, err := trigger.NextFireTime(after.UnixNano())
		if err != nil { // the trigger does not fire again
			return time.Time{}
		}
		return time.Unix(0, next)
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx); err != nil {
		log.Fatal(err)
	}
}

// serve runs the scheduler until ctx ends. It does not use quartz.WithQueue, which shares a queue between processes, because its
// sync.Locker cannot return an error, and because the default queue is in memory.
func serve(ctx context.Context) error {
	connect, cancel := context.WithTimeout(ctx, 10*time.Second)
	locks, err := zklock.Dial(connect, os.Getenv("ZK_SERVERS"))
	cancel()
	if err != nil {
		return err
	}
	defer locks.Close()
	scheduler, err := quartz.NewStdScheduler()
	if err != nil {
		return err
	}
	trigger, err := quartz.NewCronTrigger("* * * * * *")
	if err != nil {
		return err
	}
	task := once{job.NewFunctionJob(work), slots.New(locks.Mutex("/jobs/work"), scheduleOf(trigger))}
	if err := scheduler.ScheduleJob(quartz.NewJobDetail(task, quartz.NewJobKey("work")), trigger); err != nil {
		return err
	}
	scheduler.Start(ctx)
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	scheduler.Stop()
	scheduler.Wait(end)
	return locks.Shutdown(end)
}

// work is the job. It records the slot that it runs. Its context ends if the lock is lost.
func work(context.Context) (int64, error) {
	slot := time.Now().Round(time.Second).Unix()
	runs, err := os.OpenFile(os.Getenv("RUNS"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fprintln(runs, os.Getpid(), slot)
	return slot, errors.Join(err, runs.Close())
}
