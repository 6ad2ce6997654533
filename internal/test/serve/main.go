// Serve runs a server of a store on the store's usual port of the loopback, until it is interrupted. It is for trying things out. At the
// end it removes the data.
//
//	go run ./internal/test/serve redis
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/internal/test/mysqlserver"
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

// The map usual contains the ports on which clients look for a store by default.
var usual = map[string]int{"zookeeper": 2181, "etcd": 2379, "postgres": 5432, "mysql": 3306, "redis": 6379}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 || usual[args[0]] == 0 {
		return errors.New("want a store: zookeeper, etcd, postgres, mysql or redis")
	}
	server, url, err := start(ctx, args[0], usual[args[0]])
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

// The function start starts a server of a store. It returns the URL that the command tierlock takes.
func start(ctx context.Context, store string, port int) (server *child.Server, url string, err error) {
	addr := fmt.Sprint("127.0.0.1:", port)
	switch store {
	case "zookeeper":
		server, err = zkserver.Start(ctx, zkserver.Config{Port: port, TickTime: 2 * time.Second})
		url = "zk://" + addr
	case "etcd":
		server, err = etcdserver.Start(ctx, etcdserver.Config{Port: port, TickTime: 100 * time.Millisecond})
		url = "etcd://" + addr
	case "postgres":
		server, err = pgserver.Start(ctx, pgserver.Config{Port: port})
		url = pgserver.URL(addr)
	case "mysql":
		server, err = mysqlserver.Start(ctx, mysqlserver.Config{Port: port})
		url = mysqlserver.URL(addr)
	case "redis":
		server, err = redisserver.Start(ctx, redisserver.Config{Port: port})
		url = "redis://" + addr
	}
	return server, url, err
}
