// Leader is a program that many processes run, but only one of them works at a time. Start it in two terminals, and then end the process
// that works: the other process continues.
//
//	go run ./examples/leader
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/zklock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	connect, cancel := context.WithTimeout(ctx, 10*time.Second)
	locks, err := zklock.Dial(connect, cmp.Or(os.Getenv("ZK_SERVERS"), "127.0.0.1:2181")) // host:port,host:port/path
	cancel()
	if err != nil {
		return err
	}
	defer locks.Close()
	e := election.New(locks, "/examples/leader")
	go func() {
		for leader, err := range e.Observe(ctx) {
			if err != nil {
				log.Print(err)
				return
			}
			fmt.Println("leader: process", leader.PID, "on", leader.Host)
		}
	}()
	return e.Run(ctx, work)
}

// work is called when this process becomes the leader. When it returns, another process can lead.
func work(ctx context.Context, term int64) error {
	for ctx.Err() == nil {
		fmt.Println("working in term", term)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}
