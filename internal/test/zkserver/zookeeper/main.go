// Zookeeper runs a ZooKeeper on 127.0.0.1:2181 until it is interrupted, to try things with. What is
// written to it goes with it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tierlock/tierlock/internal/test/zkserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	server, err := zkserver.Start(ctx, zkserver.Config{Port: 2181, TickTime: 2 * time.Second})
	if err != nil {
		return err
	}
	fmt.Printf("ZooKeeper on %s until this is interrupted; its data go with it\n", server.Addr())
	<-ctx.Done()
	return server.Stop()
}
