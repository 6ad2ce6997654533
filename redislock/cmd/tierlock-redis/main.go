// Tierlock-redis runs a command under a distributed lock on Redis, and shows operators who holds locks and
// who waits for them.
//
//	go install github.com/tierlock/tierlock/redislock/cmd/tierlock-redis@latest
//	tierlock-redis help
package main

import (
	"os"

	"github.com/tierlock/tierlock/internal/command"
)

func main() {
	os.Exit(command.Main(new(server).store(), os.Args[1:], os.Stdout, os.Stderr))
}
