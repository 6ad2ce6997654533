package cronlock_test

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tierlock/tierlock/contrib/cronlock"
	"github.com/tierlock/tierlock/zklock"
)

// Every process of a service runs this, and one of them runs each slot.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := zklock.Dial(ctx, os.Getenv("ZK_SERVERS"))
	if err != nil {
		log.Fatal(err)
	}
	report := func(ctx context.Context) { // ends if the lock is lost
		log.Print("report: ", ctx.Err())
	}
	c := cron.New()
	if _, err := cronlock.Add(c, "@hourly", locks.Mutex("/jobs/report"), report); err != nil {
		log.Fatal(err)
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done()
	ends, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	log.Print(locks.Shutdown(ends)) // waits for locks that are being released
}

// Locked is for a job that takes no context.
func ExampleLocked() {
	locks, err := zklock.Dial(context.Background(), os.Getenv("ZK_SERVERS"))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	sweep := cron.FuncJob(func() { log.Print("sweep") })
	c := cron.New()
	c.Schedule(cron.Every(time.Hour), cron.NewChain(
		cron.Recover(cron.DefaultLogger),
		cronlock.Locked(locks.Mutex("/jobs/sweep"), cronlock.AtLeast(2*time.Second)),
	).Then(sweep))
}
