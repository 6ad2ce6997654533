package mysqllock_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/tierlock/tierlock/mysqllock"
	"github.com/tierlock/tierlock/tier"
)

func Example() {
	ctx := context.Background()
	db, err := sql.Open("mysql", "app@tcp(db)/app")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := report(ctx, db); err != nil {
		log.Fatal(err)
	}
}

// report writes only while the lock is held.
func report(ctx context.Context, db *sql.DB) error {
	if err := mysqllock.Migrate(ctx, db); err != nil {
		return err
	}
	locks, err := mysqllock.New(ctx, db, tier.WithLabel("reports"))
	if err != nil {
		return err
	}
	defer locks.Close()

	report := locks.Mutex("/locks/report")
	return report.Do(ctx, func(ctx context.Context) error { // ctx ends if the lock is lost
		return mysqllock.Tx(ctx, tier.HoldFrom(ctx, report), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO reports VALUES ('today')")
			return err
		})
	})
}
