// Tierlock runs a command under a distributed lock on ZooKeeper, and shows operators who holds
// locks and who waits for them.
//
//	go install github.com/tierlock/tierlock/cmd/tierlock@latest
//	tierlock help
package main

import (
	"os"

	"github.com/tierlock/tierlock/internal/command"
)

func main() {
	os.Exit(command.Main(new(zooKeeper).store(), os.Args[1:], os.Stdout, os.Stderr))
}
