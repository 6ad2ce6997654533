package tierotel_test

import (
	"context"
	"log"

	"github.com/tierlock/tierlock/contrib/tierotel"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

func Example() {
	telemetry, err := tierotel.New(tierotel.WithPaths("/jobs/*", "/customers/*"))
	if err != nil {
		log.Fatal(err)
	}
	locks, err := zklock.Dial(context.Background(), "zk1:2181,zk2:2181,zk3:2181", tier.WithObserver(telemetry.Observer()))
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
