package pglock_test

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/pglock"
	"github.com/tierlock/tierlock/tier"
)

func ExampleNewAdvisory() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db1,db2/app?target_session_attrs=read-write")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	locks, err := pglock.NewAdvisory(pool, pglock.WithLeaseTTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	hold, err := locks.Mutex("/locks/prices", tier.WithMaxWait(time.Second)).Acquire(ctx)
	if wait := (*tier.WaitError)(nil); errors.As(err, &wait) {
		log.Print(wait) // who was in the way
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release()
}
