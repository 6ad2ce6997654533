package tierotel_test

import (
	"context"
	"log"

	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/metrics/tierotel"
	"github.com/tierlock/tierlock/tier"
)

func Example() {
	telemetry, err := tierotel.New(tierotel.WithPaths("/jobs/*", "/customers/*"))
	if err != nil {
		log.Fatal(err)
	}
	locks, err := tierlock.Dial(context.Background(), "zk1:2181,zk2:2181,zk3:2181", tier.WithObserver(telemetry.Observer()))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	registration, err := telemetry.Register(locks)
	if err != nil {
		log.Fatal(err)
	}
	defer registration.Unregister()
}
