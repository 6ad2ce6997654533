// Scheduler is a service with a job for every second. Start it in two terminals: only one of the two processes runs each slot. Kill one
// process with kill -9 while it works. The other process takes over when the lease of the dead process has ended.
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

	"github.com/go-co-op/gocron/v2"

	"github.com/tierlock/tierlock/contrib/gocronlock"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// session is the time for which the lock of a killed process stays taken.
const session = 4 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context) error {
	connect, cancel := context.WithTimeout(ctx, 10*time.Second)
	locks, err := zklock.Dial(connect, os.Getenv("ZK_SERVERS"), tier.WithLeaseTTL(session))
	cancel()
	if err != nil {
		return err
	}
	defer locks.Close()
	seconds := slots.Every(time.Second, time.Time{}) // the times of the job below
	locker := gocronlock.NewLocker(locks, "/jobs", gocronlock.WithSchedule("work", seconds))
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return err
	}
	if _, err := scheduler.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(work), gocron.WithName("work")); err != nil {
		return err
	}
	scheduler.Start()
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(scheduler.ShutdownWithContext(end), locks.Shutdown(end))
}

// work is the job. It records its beginning and its end.
func work() error {
	slot := time.Now().Round(time.Second)
	begun := note("begins", slot)
	time.Sleep(300 * time.Millisecond)
	return errors.Join(begun, note("ends", slot))
}

func note(what string, slot time.Time) error {
	runs, err := os.OpenFile(os.Getenv("RUNS"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(runs, os.Getpid(), what, slot.Unix())
	return errors.Join(err, runs.Close())
}
