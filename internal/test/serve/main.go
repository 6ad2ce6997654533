// Serve runs a server of a store on its usual port, on the loopback, until it is interrupted, to try things with. What is written to
// it goes with it.
//
//	go run ./internal/test/serve redis
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/internal/test/zkserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: serve zookeeper|etcd|postgres|redis")
	}
	server, url, err := start(ctx, args[0])
	if err != nil {
		return err
	}
	fmt.Printf("%s runs until this is interrupted, and its data go with it. For the command:\nTIERLOCK_STORE=%s\n", args[0], url)
	if args[0] == "redis" {
		fmt.Println("It grants its first lock 15 s after its start, as each Redis.")
	}
	<-ctx.Done()
	return server.Stop()
}

// start starts a server of store, and says by which URL the command finds it.
func start(ctx context.Context, store string) (server *child.Server, url string, err error) {
	switch store {
	case "zookeeper":
		server, err = zkserver.Start(ctx, zkserver.Config{Port: 2181, TickTime: 2 * time.Second})
		url = "zk://127.0.0.1:2181"
	case "etcd":
		server, err = etcdserver.Start(ctx, etcdserver.Config{Port: 2379, TickTime: 100 * time.Millisecond})
		url = "etcd://127.0.0.1:2379"
	case "postgres":
		server, err = pgserver.Start(ctx, pgserver.Config{Port: 5432})
		url = pgserver.URL("127.0.0.1:5432")
	case "redis":
		server, err = redisserver.Start(ctx, redisserver.Config{Port: 6379})
		url = "redis://127.0.0.1:6379"
	default:
		err = fmt.Errorf("no store %q: zookeeper, etcd, postgres, redis", store)
	}
	return server, url, err
}
