package gocronlock_test

import (
	"context"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/tierlock/tierlock/contrib/gocronlock"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/zklock"
)

// Every process of a service runs this, and one of them runs each slot.
func ExampleNewLocker() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := zklock.Dial(ctx, os.Getenv("ZK_SERVERS"))
	if err != nil {
		log.Fatal(err)
	}
	hourly := slots.Every(time.Hour, time.Time{}) // the times of the job below
	locker := gocronlock.NewLocker(locks, "/jobs", gocronlock.WithSchedule("hourly report", hourly))
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker), gocron.WithLogger(slog.Default()))
	if err != nil {
		log.Fatal(err)
	}
	report := gocron.NewTask(func(ctx context.Context) error { return nil })
	if _, err := scheduler.NewJob(gocron.CronJob("0 * * * *", false), report, gocron.WithName("hourly report")); err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-ctx.Done()
	log.Print(scheduler.Shutdown())
	ends, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	log.Print(locks.Shutdown(ends)) // waits for runs
}

// Every process of a service runs this, and one of them runs all jobs.
func ExampleNewElector() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := zklock.Dial(ctx, os.Getenv("ZK_SERVERS"))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	elector := gocronlock.NewElector(locks, "/elections/scheduler", gocronlock.AtLeast(2*time.Second))
	defer elector.Close()
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	report := gocron.NewTask(func(ctx context.Context) error { return nil })
	if _, err := scheduler.NewJob(gocron.CronJob("0 * * * *", false), report); err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-ctx.Done()
	log.Print(scheduler.Shutdown())
}
