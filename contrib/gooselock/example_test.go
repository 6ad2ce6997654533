package gooselock_test

import (
	"context"
	"database/sql"
	"log"
	"os"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/tierlock/tierlock/contrib/gooselock"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// Every process of a service runs this before it serves; one of them migrates.
func ExampleNew() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	locks, err := zklock.Dial(ctx, os.Getenv("ZK_SERVERS"))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	db, err := sql.Open("mysql", os.Getenv("DATABASE"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	locker := gooselock.New(locks.Mutex("/migrations/shop", tier.WithMaxWait(5*time.Minute)))
	provider, err := goose.NewProvider(goose.DialectMySQL, db, os.DirFS("migrations"), goose.WithLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := provider.Up(ctx); err != nil {
		log.Fatal(err) // may be tier.ErrLost: check the database before another attempt
	}
}
