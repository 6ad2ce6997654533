package pglock_test

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/pglock"
	"github.com/tierlock/tierlock/tier"
)

func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db1,db2/app?target_session_attrs=read-write")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := report(ctx, pool); err != nil {
		log.Fatal(err)
	}
}

func ExampleNewAdvisory() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db1,db2/app?target_session_attrs=read-write")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	locks, err := pglock.NewAdvisory(ctx, pool, tier.WithLeaseTTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = locks.Mutex("/locks/prices", tier.WithMaxWait(time.Second)).Do(ctx, func(context.Context) error {
		return nil // the work
	})
	if wait := (*tier.WaitError)(nil); errors.As(err, &wait) {
		log.Print(wait) // names the holder or the waiter ahead
		return
	}
	if err != nil {
		log.Fatal(err)
	}
}

// report writes only while the lock is held.
func report(ctx context.Context, pool *pgxpool.Pool) error {
	if err := pglock.Migrate(ctx, pool); err != nil {
		return err
	}
	locks, err := pglock.New(ctx, pool, tier.WithLabel("reports"))
	if err != nil {
		return err
	}
	defer locks.Close()

	report := locks.Mutex("/locks/report")
	return report.Do(ctx, func(ctx context.Context) error { // ctx ends if the lock is lost
		return pglock.Tx(ctx, tier.HoldFrom(ctx, report), func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO reports VALUES ('today')")
			return err
		})
	})
}
